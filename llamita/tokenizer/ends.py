"""Which tokens end what a model says, as its tokenizer and its chat template tell."""

from __future__ import annotations

from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat

END_OF_MESSAGE = "<|eom_id|>"
"""Llama 3.1 ends a message so that waits for a tool; templates show it only around tools."""


def end_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Every token that stops generation: EOS, what ends a turn of a chat, the usual one first.

    Raises:
        TokenizerError: the tokenizer's chat template is damaged.
    """
    ids = [tokenizer.eos_token_id]
    if tokenizer.chat_template is not None:
        ids += ChatFormat.of(tokenizer).turn_end_ids
    ids.append(tokenizer.special_tokens.get(END_OF_MESSAGE))
    return tuple(dict.fromkeys(token_id for token_id in ids if token_id is not None))

"""Reads what people give as a prompt: text or token ids, one prompt or a list of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from llamita.config import ModelConfig
from llamita.errors import GenerationError
from llamita.tokenizer.base import Tokenizer


def read_prompts(
    prompt: Any, tokenizer: Tokenizer | None, config: ModelConfig
) -> tuple[list[list[int]], bool]:
    """Token ids of each prompt, none empty, and whether a list of prompts was given.

    Text, a list of ids and a tensor [T] are one prompt; a list of texts or of lists of ids and a
    tensor [B, T] are several. An empty list is no prompt at all: the empty prompt is "" or [[]].

    Raises:
        GenerationError: something else, an id outside the vocabulary, text without a tokenizer, or
            an empty prompt where no token marks a document's beginning.
    """
    is_vector = getattr(prompt, "ndim", None) == 1
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    several = (
        isinstance(prompt, list | tuple)
        and not is_vector
        and not any(isinstance(item, Integral) for item in prompt)
    )
    items = list(prompt) if several else [prompt]
    return [_read_prompt(item, tokenizer, config) for item in items], several


def check_token_ids(token_ids: Iterable[int], vocab_size: int, name: str) -> None:
    """Raise GenerationError at the first id that is not from 0 to vocab_size - 1."""
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise GenerationError(
                f"{name} holds the token id {token_id}; the vocabulary has {vocab_size}.",
                hint=f"Token ids go from 0 to {vocab_size - 1}.",
            )


def start_token_id(tokenizer: Tokenizer | None, config: ModelConfig) -> int | None:
    """The token that stands before a document: BOS if the tokenizer adds one, else the separator.

    Without a tokenizer the config's BOS, else its EOS. None where there is no such token.
    """
    if tokenizer is not None:
        if tokenizer.add_bos and tokenizer.bos_token_id is not None:
            return tokenizer.bos_token_id
        if tokenizer.eos_token_id is None and tokenizer.bos_token_id is None:
            return None
        return tokenizer.separator_id
    if config.bos_token_id is not None:
        return config.bos_token_id
    return config.eos_token_ids[0] if config.eos_token_ids else None


def _read_prompt(prompt: Any, tokenizer: Tokenizer | None, config: ModelConfig) -> list[int]:
    if isinstance(prompt, str):
        if tokenizer is None:
            raise GenerationError(
                "the prompt is text, but this model has no tokenizer.",
                hint="Name its tokenizer (--tokenizer PATH, tokenizer= of load) or give token ids.",
            )
        # What the tokenizer puts in front, but not the EOS that some put behind: the text goes on.
        ids = [*tokenizer.bos_prefix, *tokenizer.encode(prompt)]
    else:
        ids = _read_ids(prompt)
    check_token_ids(ids, config.vocab_size, "the prompt")
    if ids:
        return ids
    start = start_token_id(tokenizer, config)
    if start is None:
        raise GenerationError(
            "the prompt is empty, and this model has no token that begins a document.",
            hint="Give at least one token.",
        )
    return [start]


def _read_ids(prompt: Any) -> list[int]:
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if isinstance(prompt, Mapping):
        raise GenerationError(
            f"the prompt is {prompt!r}, a message of a chat.", hint="`chat` answers messages."
        )
    if not isinstance(prompt, list | tuple):
        raise GenerationError(
            f"the prompt is {prompt!r}.", hint="A prompt is text or a list of token ids."
        )
    for token_id in prompt:
        if not isinstance(token_id, Integral) or isinstance(token_id, bool):
            raise GenerationError(
                f"the prompt holds {token_id!r} among its token ids.",
                hint="A prompt is text or a list of token ids, which are whole numbers.",
            )
    return [int(token_id) for token_id in prompt]

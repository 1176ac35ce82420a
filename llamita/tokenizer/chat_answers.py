"""What a model answered: its reasoning, its text and its calls told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat_messages import lift_reasoning
from llamita.tokenizer.chat_tools import (
    CALL_SIGNS,
    CALL_TAGS,
    Syntax,
    parse_tool_calls,
    reasoning_end,
)


def structural_names(tokenizer: Tokenizer) -> dict[int, str]:
    """The control tokens that structure an answer, reasoning and calls, by id."""
    known = tokenizer.special_tokens
    names = (*CALL_TAGS, "<think>", "</think>", *CALL_SIGNS)
    return {known[name]: name for name in names if name in known}


def answer_text(
    tokenizer: Tokenizer, token_ids: Sequence[int], shown_names: Mapping[int, str]
) -> str:
    """The text of generated ids, with the names of these control tokens."""
    data = b"".join(
        tokenizer.shown_bytes(token_id, token_id not in shown_names) for token_id in token_ids
    )
    return data.decode("utf-8", errors="replace")


def parse_answer(text: str, syntax: Syntax | None, *, reasons: bool) -> dict[str, Any]:
    """The message of an assistant that said this. syntax: that of its calls; None: it has none.

    reasons: whether reasoning may stand before the answer.
    """
    message: dict[str, Any] = {"role": "assistant", "content": text}
    end = reasoning_end(text, syntax) if reasons else None
    if end is not None:
        message = lift_reasoning({**message, "content": text[:end]})
        message["content"] = text[end:].lstrip("\n")
    if syntax is not None:
        content, found = parse_tool_calls(message["content"], syntax)
        if found:
            message |= {"content": content, "tool_calls": found}
    return message

"""Does the chat template say the same after a conversion?"""

from __future__ import annotations

from typing import Any

from llamita.errors import LlamitaError
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat

PROBE_CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "What is 12 × 9? Two lines,\nplease."},
    {"role": "assistant", "content": "It is 108.\n\tՀարյուր ութ."},
    {"role": "user", "content": "And {{ 7 * 7 }}?"},
]


def render(tokenizer: Tokenizer, messages: list[dict[str, Any]]) -> str | None:
    """The prompt for the next answer; None without a template, or where it refuses."""
    if tokenizer.chat_template is None:
        return None
    try:
        return ChatFormat.of(tokenizer).render(messages, add_generation_prompt=True)
    except LlamitaError:
        return None


def compare_chat(
    a: Tokenizer | None, b: Tokenizer | None, differences: list[str], notes: list[str]
) -> bool | None:
    """Whether both render a conversation alike; None where A has no template."""
    if a is None or b is None or a.chat_template is None:
        return None
    if b.chat_template is None:
        differences.append("the chat template is lost.")
        return False
    if a.chat_template == b.chat_template:
        _compare_ids(a, b, notes)
        return True
    left, right = render(a, PROBE_CONVERSATION), render(b, PROBE_CONVERSATION)
    if left is not None and left == right:
        notes.append("the chat template is written differently, but renders a conversation alike.")
        _compare_ids(a, b, notes)
        return True
    differences.append(f"a chat is rendered differently: {right!r}, where it was {left!r}.")
    return False


def _compare_ids(a: Tokenizer, b: Tokenizer, notes: list[str]) -> None:
    """SentencePiece puts its space before a whole chat, other programs before each text in it."""
    try:
        left, right = (ChatFormat.of(t).encode(PROBE_CONVERSATION) for t in (a, b))
    except LlamitaError:  # the template refuses the conversation, for both
        return
    if left != right:
        notes.append(
            f"a chat has other token ids ({len(left)} in the source, {len(right)} here), although "
            "each text has the same: spaces beside control tokens are treated differently."
        )

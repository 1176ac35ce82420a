"""The blocks of an assistant's text that stand for its reasoning and its tool calls.

Fine-tuning data holds them as text, `<think>…</think>` and `<tool_call>{…}</tool_call>`. Where the
tokenizer has control tokens of these names, the model is to say those.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from llamita.tokenizer.chat_tools import is_call

_OPENING = re.compile("<think>|<tool_call>")


def has_blocks(text: str) -> bool:
    """Whether a text may hold such a block, or the end of one that the prompt began."""
    return "</think>" in text or "<tool_call>" in text


def block_tags(text: str, names: Container[str]) -> Iterator[tuple[int, int]]:
    """Where the tags of well-formed blocks stand, if both tags of the block are among `names`.

    A block holds no opening tag of its own kind. A tool call is JSON with a name and arguments.
    What stands inside a block is text.
    """
    place = 0
    closings: dict[str, int] = {}
    while match := _OPENING.search(text, place):
        opening, place = match[0], match.end()
        closing = f"</{opening[1:]}"
        end = closings.get(closing, 0)
        if 0 <= end < place:
            end = closings[closing] = text.find(closing, place)
        if end < 0 or opening not in names or closing not in names:
            continue
        if text.find(opening, place, end) >= 0:
            continue
        if opening == "<think>" or is_call(text[place:end]):
            yield match.span()
            place = end + len(closing)
            yield end, place

"""Cutting a long text into several, at its blank lines where it has them.

A text file is one document whatever its size, and a document must fit in memory; so a long one is
cut. The pieces join to the text exactly, and do not depend on how the stream was chunked.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

BLANK_LINES = ("\n\n", "\n\r\n")
LINE_ENDS = ("\n", "\r")


def cut_text(chunks: Iterable[str], limit: int) -> Iterator[str]:
    """Cut the text that `chunks` join to into pieces of at most `limit` characters.

    Each piece is as long as the limit allows, but ends after a blank line if there is one in its
    second half, else after a line end there, else at the limit. Holds about one piece in memory.
    """
    parts: list[str] = []
    length = 0
    for chunk in chunks:
        parts.append(chunk)
        length += len(chunk)
        if length <= limit:
            continue
        buffer, start = "".join(parts), 0
        while len(buffer) - start > limit:
            end = _cut_position(buffer, start, start + limit)
            yield buffer[start:end]
            start = end
        parts = [buffer[start:]]
        length -= start
    if length:
        yield "".join(parts)


def _cut_position(buffer: str, start: int, end: int) -> int:
    """Where to cut `buffer[start:end]`, the text going on after `end`."""
    if end - start > 1 and buffer[end - 1 : end + 1] == "\r\n":
        end -= 1
    # A letter stays with its accents, which normalization joins later.
    while end - start > 1 and unicodedata.combining(buffer[end]):
        end -= 1
    middle = start + (end - start) // 2
    for breaks in (BLANK_LINES, LINE_ENDS):
        position = max(_end_of_last(mark, buffer, start, end) for mark in breaks)
        if position > middle:
            return position
    return end


def _end_of_last(mark: str, buffer: str, start: int, end: int) -> int:
    """The position after the last `mark` in `buffer[start:end]`, or -1."""
    found = buffer.rfind(mark, start, end)
    return found + len(mark) if found >= 0 else -1

"""A fair sample of a stream of texts in bounded memory.

A corpus may be far larger than memory, and a tokenizer learns all it can from a part of it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

CHUNK_CHARACTERS = 4096


@dataclass(frozen=True)
class TextSample:
    """Chunks of text (UTF-8), in the order of the stream, and how much was seen."""

    chunks: list[bytes]
    used_bytes: int
    total_bytes: int

    def __iter__(self) -> Iterator[str]:
        return (chunk.decode() for chunk in self.chunks)


def sample_texts(texts: Iterable[str], limit_bytes: int, seed: int = 0) -> TextSample:
    """Every chunk of `texts` has the same chance to be among the at most `limit_bytes` kept.

    Each chunk draws a random key, and those with the smallest keys stay. The same texts and seed
    give the same sample.
    """
    generator = random.Random(seed)
    heap: list[tuple[float, int, bytes]] = []
    used = total = 0
    for order, chunk in enumerate(_chunks(texts)):
        heapq.heappush(heap, (-generator.random(), order, chunk))
        used += len(chunk)
        total += len(chunk)
        while used > limit_bytes:
            used -= len(heapq.heappop(heap)[2])
    kept = sorted(heap, key=lambda entry: entry[1])
    return TextSample([chunk for _, _, chunk in kept], used, total)


def split_at_lines(text: str, limit: int = CHUNK_CHARACTERS) -> Iterator[str]:
    """Parts of at most `limit` characters, cut behind a line or else before a space."""
    start = 0
    while len(text) - start > limit:
        end = text.rfind("\n", start, start + limit) + 1
        if end <= start:
            end = text.rfind(" ", start + 1, start + limit)
        if end <= start:
            end = start + limit
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _chunks(texts: Iterable[str]) -> Iterator[bytes]:
    for text in texts:
        for part in split_at_lines(text):
            yield part.encode("utf-8", errors="replace")

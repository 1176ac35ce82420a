"""Damage that knows nothing of formats: bits, bytes, lengths."""

from __future__ import annotations

import random
from collections.abc import Callable

NUMBERS = (0, 1, 2, 0x7F, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)


def place(draw: random.Random, data: bytes) -> int:
    """Somewhere in `data`, most often near its ends, where headers are."""
    near = min(len(data), 4096)
    return draw.choice(
        (
            draw.randrange(near),
            draw.randrange(min(near, 64)),
            len(data) - 1 - draw.randrange(near),
            draw.randrange(len(data)),
        )
    )


def flip_bits(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 8, 64))):
        changed[place(draw, data)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut_off(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.choice((0, 1, 7, place(draw, data), len(data) - 1))]


def insert(draw: random.Random, data: bytes) -> bytes:
    at = place(draw, data)
    return data[:at] + draw.randbytes(draw.choice((1, 2, 7, 8, 100))) + data[at:]


def remove(draw: random.Random, data: bytes) -> bytes:
    at = place(draw, data)
    return data[:at] + data[at + draw.choice((1, 2, 8, 100)) :]


def splice(draw: random.Random, data: bytes) -> bytes:
    """A piece of the file in place of another."""
    length = draw.choice((1, 8, 64, 1000))
    source, at = place(draw, data), place(draw, data)
    piece = data[source : source + length]
    return data[:at] + piece + data[at + len(piece) :]


def fill(draw: random.Random, data: bytes) -> bytes:
    at, length = place(draw, data), draw.choice((1, 4, 8, 512))
    length = min(length, len(data) - at)
    return data[:at] + bytes([draw.choice((0, 255, 0x41))]) * length + data[at + length :]


def number(draw: random.Random, data: bytes) -> bytes:
    at, width = place(draw, data), draw.choice((1, 2, 4, 8))
    value = draw.choice(NUMBERS) % (1 << 8 * width)
    return data[:at] + value.to_bytes(width, "little") + data[at + width :]


RAW: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    flip_bits,
    flip_bits,
    cut_off,
    insert,
    remove,
    splice,
    fill,
    number,
)

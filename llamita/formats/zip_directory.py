"""Where the files in an uncompressed zip archive lie.

PyTorch stores its records so that they can be mapped: one after another, as they are. An archive
that compresses them, or whose directory contradicts itself, is no PyTorch file, and unpacking it
could ask for any amount of memory (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

MOST_ENTRIES = 200_000
_LARGEST_DIRECTORY = 64_000_000
_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY, _LOCAL = b"PK\x01\x02", b"PK\x03\x04"
_IN_EXTRA = 0xFFFFFFFF


@dataclass(frozen=True)
class Span:
    """Bytes of a file: where they begin, and how many they are."""

    start: int
    size: int


def read_zip_directory(handle: BinaryIO) -> dict[str, Span]:
    """The files in an archive by name, each as the span of its bytes.

    Raises:
        ValueError: something is compressed, cut off, doubled, overlapping or not where it should.
    """
    size = handle.seek(0, 2)
    start, length, count = _find_directory(handle, size)
    if count > MOST_ENTRIES or length > _LARGEST_DIRECTORY or start + length > size:
        raise ValueError(f"its directory claims {count:,} files and {length:,} bytes")
    handle.seek(start)
    directory = handle.read(length)
    spans: dict[str, Span] = {}
    headers: list[tuple[int, int]] = []
    position = 0
    for _ in range(count):
        name, span, header, position = _read_entry(directory, position, handle, start)
        if name in spans:
            raise ValueError(f"it holds {name!r} twice")
        spans[name] = span
        headers.append((header, span.start + span.size))
    headers.sort()
    for (_, end), (begin, _) in pairwise(headers):
        if end > begin:
            raise ValueError("files in it overlap")
    return spans


def _find_directory(handle: BinaryIO, size: int) -> tuple[int, int, int]:
    """Start, length and number of entries of the central directory."""
    tail_start = max(size - 65557, 0)  # the end record, behind it a comment of up to 64 KiB
    handle.seek(tail_start)
    tail = handle.read(65557)
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + 22:
        raise ValueError("it is cut off: the directory at its end is missing")
    count, length, start = struct.unpack_from("<HII", tail, at + 10)
    if at >= 20 and tail[at - 20 : at - 16] == _LOCATOR:
        [end64] = struct.unpack_from("<Q", tail, at - 12)
        if end64 > size - 56:
            raise ValueError("its directory lies beyond its end")
        handle.seek(end64)
        record = handle.read(56)
        if record[:4] != _END64:
            raise ValueError("its directory is not where it says")
        count, length, start = struct.unpack_from("<QQQ", record, 32)
    return start, length, count


def _read_entry(
    directory: bytes, position: int, handle: BinaryIO, limit: int
) -> tuple[str, Span, int, int]:
    """Name, bytes and local header of an entry, and where the next one begins."""
    if directory[position : position + 4] != _ENTRY or len(directory) < position + 46:
        raise ValueError("its directory is damaged")
    flags, method = struct.unpack_from("<HH", directory, position + 8)
    packed, plain, *lengths = struct.unpack_from("<IIHHH", directory, position + 20)
    [header] = struct.unpack_from("<I", directory, position + 42)
    end = position + 46 + sum(lengths)
    if end > len(directory):
        raise ValueError("its directory is damaged")
    name_end = position + 46 + lengths[0]
    name = directory[position + 46 : name_end].decode("utf-8", "backslashreplace")
    extra = directory[name_end : name_end + lengths[1]]
    plain, packed, header = _widen(extra, (plain, packed, header))
    if method or flags & 1 or packed != plain:
        raise ValueError(f"{name!r} in it is compressed or encrypted; PyTorch stores files plainly")
    handle.seek(header)
    local = handle.read(30)
    if len(local) < 30 or local[:4] != _LOCAL:
        raise ValueError(f"{name!r} is not where its directory says")
    start = header + 30 + sum(struct.unpack_from("<HH", local, 26))
    if start + plain > limit:
        raise ValueError(f"{name!r} in it claims {plain:,} bytes, more than there are")
    return name, Span(start, plain), header, end


def _widen(extra: bytes, values: tuple[int, int, int]) -> list[int]:
    """The 64-bit values in place of those that do not fit into 32 bits."""
    wide = b""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == 1:
            wide = extra[4 : 4 + length]
        extra = extra[4 + length :]
    result = []
    for value in values:
        if value == _IN_EXTRA:
            if len(wide) < 8:
                raise ValueError("its directory is damaged")
            value, wide = struct.unpack_from("<Q", wide)[0], wide[8:]
        result.append(value)
    return result

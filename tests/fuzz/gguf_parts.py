"""A GGUF file taken apart into what can be spoiled, and put together again without a check."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

_FORMS = {
    **{0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"},
    **{10: "Q", 11: "q", 12: "d"},
}
STRING, ARRAY = 8, 9


@dataclass
class Entry:
    """A key, the number of its type and its value; of an array also the type and length said."""

    key: bytes
    kind: int
    value: Any
    inner: int = 0
    claimed: int | None = None


@dataclass
class Tensor:
    """`offset` None: wherever the data comes to lie."""

    name: bytes | str
    dims: list[int]
    kind: int
    data: bytes
    offset: int | None = None
    claimed_dims: int | None = None


@dataclass
class GGUFParts:
    version: int
    entries: list[Entry]
    tensors: list[Tensor]
    tensor_count: int | None = None
    entry_count: int | None = None
    magic: bytes = b"GGUF"
    string_lengths: dict[int, int] = field(default_factory=dict)
    """What the n-th text written claims as its length instead of its own."""

    @classmethod
    def parse(cls, data: bytes) -> GGUFParts:
        """Take a sound file apart."""
        reader = _Reader(data)
        version, tensor_count, entry_count = reader.take("I", 4), reader.take("Q"), reader.take("Q")
        entries = [reader.entry() for _ in range(entry_count)]
        infos = []
        for _ in range(tensor_count):
            name = reader.text()
            dims = [reader.take("Q") for _ in range(reader.take("I"))]
            infos.append((name, dims, reader.take("I"), reader.take("Q")))
        start = -(-reader.position // 32) * 32
        ends = [*sorted(offset for *_, offset in infos)[1:], len(data) - start]
        tensors = [
            Tensor(name.decode(), dims, kind, data[start + offset : start + end])
            for (name, dims, kind, offset), end in zip(infos, ends, strict=True)
        ]
        return cls(version, entries, tensors)

    def build(self) -> bytes:
        """The file, with every false claim that was put into the parts."""
        self._written = 0
        entries = len(self.entries) if self.entry_count is None else self.entry_count
        count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        head = self.magic + struct.pack("<IQQ", self.version, count, entries)
        for entry in self.entries:
            head += self._text(entry.key) + struct.pack("<I", entry.kind) + self._value(entry)
        offset, body = 0, b""
        for tensor in self.tensors:
            name = tensor.name.encode() if isinstance(tensor.name, str) else tensor.name
            claimed = len(tensor.dims) if tensor.claimed_dims is None else tensor.claimed_dims
            head += self._text(name) + struct.pack("<I", claimed)
            head += b"".join(struct.pack("<Q", dim) for dim in tensor.dims)
            place = offset if tensor.offset is None else tensor.offset
            head += struct.pack("<IQ", tensor.kind, place)
            padded = tensor.data + bytes(-len(tensor.data) % 32)
            body += padded
            offset += len(padded)
        return head + bytes(-len(head) % 32) + body

    def _text(self, text: bytes) -> bytes:
        self._written += 1
        return struct.pack("<Q", self.string_lengths.get(self._written, len(text))) + text

    def _value(self, entry: Entry) -> bytes:
        if entry.kind == ARRAY:
            values = entry.value if isinstance(entry.value, list) else [entry.value]
            claimed = len(values) if entry.claimed is None else entry.claimed
            head = struct.pack("<IQ", entry.inner, claimed)
            return head + b"".join(self._plain(entry.inner, value) for value in values)
        return self._plain(entry.kind, entry.value)

    def _plain(self, kind: int, value: Any) -> bytes:
        """A value of a type, as far as it can be written so; else its bytes as they are."""
        if isinstance(value, bytes) and kind == STRING:
            return self._text(value)
        try:
            return struct.pack("<" + _FORMS[kind], value)
        except (KeyError, struct.error, OverflowError):
            text = value if isinstance(value, bytes) else str(value).encode()
            return text[:8].ljust(8, b"\0")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, form: str, skip: int = 0) -> Any:
        self.position += skip
        [value] = struct.unpack_from("<" + form, self.data, self.position)
        self.position += struct.calcsize("<" + form)
        return value

    def text(self) -> bytes:
        length = self.take("Q")
        self.position += length
        return self.data[self.position - length : self.position]

    def plain(self, kind: int) -> Any:
        return self.text() if kind == STRING else self.take(_FORMS[kind])

    def entry(self) -> Entry:
        key, kind = self.text(), self.take("I")
        if kind != ARRAY:
            return Entry(key, kind, self.plain(kind))
        inner, count = self.take("I"), self.take("Q")
        return Entry(key, kind, [self.plain(inner) for _ in range(count)], inner)

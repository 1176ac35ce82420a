"""The header of a GGUF file, made: keys, values and where each tensor will lie."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llamita.formats.gguf_header import MAGIC
from llamita.formats.gguf_values import ARRAY, BOOL, STRING
from llamita.quantization.kinds import Kind

ALIGNMENT = 32
_VERSION = 3
_UINT32, _INT32, _FLOAT32 = 4, 5, 6
_ARRAYS = {np.dtype(np.float32): _FLOAT32, np.dtype(np.int32): _INT32}


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor as it will be written; `shape` outermost first."""

    name: str
    shape: Sequence[int]
    kind: Kind

    @property
    def size(self) -> int:
        """Its bytes, without what fills up to the next one."""
        rows = 1
        for length in self.shape[:-1]:
            rows *= length
        return rows * self.kind.row_bytes(self.shape[-1])


def padding(size: int) -> bytes:
    """What fills up to the next multiple of the alignment."""
    return bytes(-size % ALIGNMENT)


def encode_header(entries: Mapping[str, Any], tensors: Iterable[PlannedTensor]) -> bytes:
    """All that comes before the tensors' bytes, filled up to the alignment.

    Args:
        entries: whole numbers become uint32, floats float32; texts, truth values, lists of texts
            and numpy arrays of float32 or int32 are what they are.
    """
    tensors = list(tensors)
    parts = [MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(entries))]
    for key, value in entries.items():
        parts += [_text(key), _value(value)]
    offset = 0
    for tensor in tensors:
        parts.append(_text(tensor.name))
        parts.append(struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape[::-1]))
        parts.append(struct.pack("<IQ", tensor.kind.number, offset))
        offset += tensor.size + len(padding(tensor.size))
    header = b"".join(parts)
    return header + padding(len(header))


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    if isinstance(value, np.ndarray):
        return struct.pack("<IIQ", ARRAY, _ARRAYS[value.dtype], len(value)) + value.tobytes()
    texts = b"".join(_text(text) for text in value)
    return struct.pack("<IIQ", ARRAY, STRING, len(value)) + texts

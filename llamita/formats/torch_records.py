"""What a PyTorch pickle may say: where tensors lie, and nothing that would have to be run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

MOST_DIMENSIONS = 8


class MoreThanWeights(Exception):
    """The pickle asks for something else than tensors and plain values; its text says for what."""


@dataclass(frozen=True)
class StorageRecord:
    """A run of numbers that lies outside the pickle. `dtype` None: bytes without a type."""

    key: str
    dtype: torch.dtype | None
    numel: int

    @property
    def width(self) -> int:
        """Bytes of one of its elements."""
        return 1 if self.dtype is None else self.dtype.itemsize


@dataclass(frozen=True)
class TensorRecord:
    """A tensor: a view on a storage, in elements of `dtype`."""

    storage: StorageRecord
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        """How many numbers it has."""
        return math.prod(self.size)

    @property
    def end(self) -> int:
        """One past the highest element of the storage that it looks at."""
        if 0 in self.size:
            return self.offset
        steps = zip(self.size, self.stride, strict=True)
        return self.offset + sum((size - 1) * stride for size, stride in steps) + 1


@dataclass(frozen=True)
class GlobalName:
    """Something that the pickle names; nothing is imported for it."""

    name: str


def are_counts(values: Any) -> bool:
    """Whether a value lists numbers of things: a shape, strides, an offset."""
    return isinstance(values, (tuple, list)) and all(
        type(value) is int and 0 <= value < 1 << 62 for value in values
    )


def is_plain_key(value: Any) -> bool:
    """Whether a value may be a key: a tuple of tuples of tuples may take forever to hash."""
    return value is None or isinstance(value, (str, int, float, bytes))


def describe(value: Any) -> str:
    """A value in few words: its own text might be endless."""
    if isinstance(value, GlobalName):
        return value.name
    if isinstance(value, (int, float, str, bytes)) and len(str(value)) < 50:
        return repr(value)
    return f"a {type(value).__name__}"

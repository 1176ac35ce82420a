"""A tensor of a file, known by shape and type and read when it is needed.

Converting a model larger than memory works because nothing but one tensor at a time is ever read:
formats hand on `StoredTensor`s, tables rename and transform them, and whoever writes or builds a
model reads each one, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor


@dataclass(frozen=True)
class StoredTensor:
    """One tensor, not read yet.

    Attributes:
        shape: of what `read` gives.
        dtype: of what `read` gives.
        read: reads it (memory-mapped where the file allows it), transformed as its format asks.
            Nothing is kept: each call reads again.
        kind: how it is stored, as people name it: "float32", "bfloat16", "Q4_1".
        stored_bytes: what it takes on disk.
        blocks: for a block format, reads the stored bytes as they are, uint8 [rows, bytes of a
            row], so that a file in the same format can have them without a loss.
    """

    shape: torch.Size
    dtype: torch.dtype
    read: Callable[[], Tensor]
    kind: str
    stored_bytes: int
    blocks: Callable[[], Tensor] | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> StoredTensor:
        """A tensor that is already there, in memory or mapped."""
        kind = str(tensor.dtype).removeprefix("torch.")
        size = tensor.numel() * tensor.element_size()
        return cls(tensor.shape, tensor.dtype, lambda: tensor, kind, size)

    def numel(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    def then(
        self, function: Callable[[Tensor], Tensor], shape: Sequence[int] | None = None
    ) -> StoredTensor:
        """What `function` makes of it, when it is read; `shape` where that changes it."""
        new_shape = self.shape if shape is None else torch.Size(shape)
        share = math.prod(new_shape) / max(self.numel(), 1)
        size = round(self.stored_bytes * share)
        return StoredTensor(new_shape, self.dtype, lambda: function(self.read()), self.kind, size)

    def then_rows(self, function: Callable[[Tensor], Tensor]) -> StoredTensor:
        """As `then`, for a function that only puts rows in another order.

        Blocks lie within rows, so it does the same to them.
        """
        moved, blocks = self.then(function), self.blocks
        return moved if blocks is None else replace(moved, blocks=lambda: function(blocks()))


def concatenate(parts: Sequence[StoredTensor], dim: int) -> StoredTensor:
    """Several tensors joined along `dim`, when read; shapes must fit.

    Of several types the result has the one that holds them all without loss.
    """
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    shape[dim] = sum(part.shape[dim] for part in parts)
    dtype = reduce(torch.promote_types, (part.dtype for part in parts))
    kinds = {part.kind for part in parts}
    return StoredTensor(
        torch.Size(shape),
        dtype,
        lambda: torch.cat([part.read().to(dtype) for part in parts], dim),
        kinds.pop() if len(kinds) == 1 else str(dtype).removeprefix("torch."),
        sum(part.stored_bytes for part in parts),
    )

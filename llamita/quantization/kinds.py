"""The kinds of numbers in a GGUF file: how many to a block, and the block's bytes.

Numbered and sized as in ggml (`ggml_type` in ggml.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from llamita.errors import CheckpointError


@dataclass(frozen=True)
class Kind:
    """One way to store numbers.

    Attributes:
        name: as people write it, "Q4_1".
        number: of the type in a file.
        block_size: how many numbers share a block; a row is a whole number of blocks.
        block_bytes: what a block takes.
        dtype: for plain floating-point numbers, else None.
    """

    name: str
    number: int
    block_size: int
    block_bytes: int
    dtype: torch.dtype | None = None

    def row_bytes(self, length: int) -> int:
        """Bytes of a row of `length` numbers, a multiple of the block size."""
        return length // self.block_size * self.block_bytes


_KINDS = (
    Kind("F32", 0, 1, 4, torch.float32),
    Kind("F16", 1, 1, 2, torch.float16),
    Kind("Q4_0", 2, 32, 18),
    Kind("Q4_1", 3, 32, 20),
    Kind("Q5_0", 6, 32, 22),
    Kind("Q5_1", 7, 32, 24),
    Kind("Q8_0", 8, 32, 34),
    Kind("Q2_K", 10, 256, 84),
    Kind("Q3_K", 11, 256, 110),
    Kind("Q4_K", 12, 256, 144),
    Kind("Q5_K", 13, 256, 176),
    Kind("Q6_K", 14, 256, 210),
    Kind("F64", 28, 1, 8, torch.float64),
    Kind("BF16", 30, 1, 2, torch.bfloat16),
)
KINDS = {kind.name: kind for kind in _KINDS}
"""What is read, by name."""

BY_NUMBER = {kind.number: kind for kind in _KINDS}

FOREIGN = {
    4: "Q4_2",
    5: "Q4_3",
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}
"""Types that ggml has and that are not read, to call them by their names."""

PLAIN_KINDS = {kind.dtype: kind.name for kind in _KINDS if kind.dtype is not None}


def kind_of(name: str) -> Kind:
    """The kind of that name, however it is capitalized.

    Raises:
        CheckpointError: it is none of those that are read.
    """
    kind = KINDS.get(name.upper())
    if kind is None:
        raise CheckpointError(
            f"numbers of type {name} are not read.", hint=f"Read are {', '.join(KINDS)}."
        )
    return kind


def fits_rows(kind: Kind, shape: Sequence[int]) -> bool:
    """Whether rows of such a tensor are whole blocks."""
    return bool(shape) and shape[-1] % kind.block_size == 0

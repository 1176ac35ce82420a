"""The number formats that a conversion may be asked for, and what each makes of a tensor."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from llamita.errors import ConfigError
from llamita.formats.stored import StoredTensor
from llamita.quantization.kinds import KINDS

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
BLOCKS = ("q8_0", "q4_0", "q4_1")
"""Formats of blocks of 32 numbers with a scale of 16 bits; GGUF alone has them."""
BLOCK_LENGTH = 32
# A block's scale is a float16: its largest number divided by what the largest code counts.
_LARGEST_IN_BLOCKS = {"q8_0": 127 * 65504.0, "q4_0": 8 * 65504.0, "q4_1": 65504.0}
_NUMBERS_AT_ONCE = 2**22


def block_kind(tensor: StoredTensor) -> str | None:
    """The block format a file holds `tensor` in, as `q4_0`; None for plain numbers."""
    return None if tensor.blocks is None else tensor.kind.lower()


def stored_size(tensor: StoredTensor, quantization: str | None, target: str) -> int:
    """About how many bytes `tensor` takes when it is written, rather too many than too few."""
    if quantization in BLOCKS and len(tensor.shape) > 1:
        kind = KINDS[quantization.upper()]
        if tensor.shape[-1] % BLOCK_LENGTH == 0:
            return tensor.numel() // tensor.shape[-1] * kind.row_bytes(tensor.shape[-1])
        return 2 * tensor.numel()
    if quantization is None and target == "gguf" and tensor.blocks is not None:
        return tensor.stored_bytes
    return tensor.numel() * DTYPES.get(quantization or "", tensor.dtype).itemsize


def check_range(tensors: Mapping[str, StoredTensor], quantization: str | None) -> None:
    """Refuse numbers that a narrower format does not have.

    Too large ones would become infinite. Blocks have neither infinity nor NaN; elsewhere these stay
    what they are. Only what is narrowed is read.

    Raises:
        ConfigError: a tensor holds one; the message names the tensor and the number.
    """
    if quantization is None:
        return
    for name, tensor in tensors.items():
        if quantization == block_kind(tensor):
            continue  # taken over
        limit, is_blocks = _limit(tensor, quantization), _makes_blocks(tensor, quantization)
        if not is_blocks and limit >= torch.finfo(tensor.dtype).max:
            continue
        largest, is_finite = _largest(tensor.read())
        if is_blocks and not is_finite:
            raise ConfigError(
                f"{name} holds numbers that are not finite, which {quantization} cannot hold.",
                hint="The model is damaged; --to hf copies it as it is.",
            )
        if largest > limit:
            raise ConfigError(
                f"{name} holds numbers up to {largest:.6g}; {quantization} holds none above "
                f"{limit:.6g}.",
                hint="They would become infinite. Convert to bf16 or f32.",
            )


def _makes_blocks(tensor: StoredTensor, quantization: str) -> bool:
    is_table = len(tensor.shape) > 1
    return quantization in BLOCKS and is_table and tensor.shape[-1] % BLOCK_LENGTH == 0


def _limit(tensor: StoredTensor, quantization: str) -> float:
    if quantization not in BLOCKS:
        return torch.finfo(DTYPES[quantization]).max
    if len(tensor.shape) < 2:
        return torch.finfo(torch.float32).max
    if tensor.shape[-1] % BLOCK_LENGTH:
        return torch.finfo(torch.float16).max
    return _LARGEST_IN_BLOCKS[quantization]


def _largest(numbers: Tensor) -> tuple[float, bool]:
    """The largest finite magnitude, 0 where there is none, and whether all are finite."""
    largest, is_finite = 0.0, True
    for part in torch.split(numbers.reshape(-1), _NUMBERS_AT_ONCE):
        magnitudes = part.abs()
        finite = magnitudes[magnitudes.isfinite()]
        is_finite = is_finite and finite.numel() == part.numel()
        largest = max(largest, float(finite.max()) if finite.numel() else 0.0)
    return largest, is_finite

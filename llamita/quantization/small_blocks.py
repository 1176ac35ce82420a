"""Blocks of 32 numbers: a float16 scale, sometimes a float16 minimum, and small integers.

Readers fill `out` [N, 32] float32 from blocks [N, bytes] uint8; writers do the reverse. Numbers
0 to 15 of a block lie in the low halves of its bytes, 16 to 31 in the high halves.
"""

from __future__ import annotations

import torch
from torch import Tensor

_HALF = 16


def read_q8_0(blocks: Tensor, out: Tensor) -> None:
    """x = scale * q, q from -128 to 127."""
    out.copy_(blocks[:, 2:].view(torch.int8))
    out.mul_(half(blocks, 0))


def read_q4_0(blocks: Tensor, out: Tensor) -> None:
    """x = scale * (q - 8), q from 0 to 15."""
    _spread_nibbles(blocks[:, 2:], out)
    out.sub_(8).mul_(half(blocks, 0))


def read_q4_1(blocks: Tensor, out: Tensor) -> None:
    """x = scale * q + minimum, q from 0 to 15."""
    _spread_nibbles(blocks[:, 4:], out)
    # Two steps: one fused multiply-add would round differently from ggml's definition.
    out.mul_(half(blocks, 0)).add_(half(blocks, 2))


def read_q5_0(blocks: Tensor, out: Tensor) -> None:
    """x = scale * (q - 16), q from 0 to 31; the fifth bits lie together."""
    _spread_nibbles(blocks[:, 6:], out)
    out.add_(_fifth_bits(blocks[:, 2:6])).sub_(16).mul_(half(blocks, 0))


def read_q5_1(blocks: Tensor, out: Tensor) -> None:
    """x = scale * q + minimum, q from 0 to 31."""
    _spread_nibbles(blocks[:, 8:], out)
    out.add_(_fifth_bits(blocks[:, 4:8])).mul_(half(blocks, 0)).add_(half(blocks, 2))


def write_q8_0(blocks: Tensor) -> Tensor:
    """The largest magnitude becomes 127; halves are rounded away from zero."""
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    scaled = blocks * _inverse(scale)
    size = scaled.abs()
    whole = size.floor()
    rounded = (whole + (2 * (size - whole)).floor()) * scaled.sign()
    return torch.cat((_bytes_of(scale), rounded.to(torch.int8).view(torch.uint8)), dim=-1)


def write_q4_0(blocks: Tensor) -> Tensor:
    """The number of the largest magnitude becomes -8 exactly, whichever its sign."""
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    scale = largest / -8
    return torch.cat((_bytes_of(scale), _pack(blocks * _inverse(scale) + 8.5)), dim=-1)


def write_q4_1(blocks: Tensor) -> Tensor:
    """The least number becomes 0, the greatest 15."""
    least, greatest = blocks.aminmax(dim=-1, keepdim=True)
    scale = (greatest - least) / 15
    steps = (blocks - least) * _inverse(scale)
    return torch.cat((_bytes_of(scale), _bytes_of(least), _pack(steps + 0.5)), dim=-1)


def half(blocks: Tensor, offset: int) -> Tensor:
    """The float16 at byte `offset` of each block, as float32 [N, 1]."""
    return blocks[:, offset : offset + 2].contiguous().view(torch.float16).float()


def _spread_nibbles(codes: Tensor, out: Tensor) -> None:
    out[:, :_HALF] = codes & 0x0F
    out[:, _HALF:] = codes >> 4


def _fifth_bits(packed: Tensor) -> Tensor:
    """32 bits in 4 bytes, lowest first, as 0 or 16: uint8 [N, 32]."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return (((packed[:, :, None] >> shifts) & 1) << 4).flatten(1)


def _inverse(scale: Tensor) -> Tensor:
    """1 / scale, and 0 where that is no number: such a block is all zeros in float16."""
    inverse = 1 / scale
    return torch.where(torch.isfinite(inverse), inverse, 0.0)


def _pack(codes: Tensor) -> Tensor:
    """Numbers from 0 to below 17, cut to whole ones of 4 bits, two to a byte."""
    whole = codes.to(torch.uint8).clamp_(max=15)
    return whole[:, :_HALF] | (whole[:, _HALF:] << 4)


def _bytes_of(scale: Tensor) -> Tensor:
    return scale.half().view(torch.uint8)

"""The k-quants: 256 numbers to a block, in groups of 16 or 32 whose scales are small integers too.

Readers fill `out` [N, 256] float32 from blocks [N, bytes] uint8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from llamita.quantization.small_blocks import half


def read_q2_k(blocks: Tensor, out: Tensor) -> None:
    """16 groups: 4 bits each of scale and minimum [16], 2-bit codes [64], two float16."""
    scales, codes = blocks[:, :16], blocks[:, 16:80]
    scale = half(blocks, 80) * (scales & 0x0F)
    least = half(blocks, 82) * (scales >> 4)
    out.copy_(_planes(codes, 32, 2))
    groups = out.view(-1, 16, 16)
    groups.mul_(scale[:, :, None]).sub_(least[:, :, None])


def read_q3_k(blocks: Tensor, out: Tensor) -> None:
    """16 groups: third bits [32], 2-bit codes [64], 6-bit scales [12], a float16.

    A third bit that is not set takes 4 from the code.
    """
    thirds, codes, packed = blocks[:, :32], blocks[:, 32:96], blocks[:, 96:108]
    low = torch.cat((packed[:, :8] & 0x0F, packed[:, :8] >> 4), dim=-1)
    high = _planes(packed[:, 8:], 4, 2)
    scale = half(blocks, 108) * ((low | (high << 4)).to(torch.int8) - 32)
    out.copy_(_planes(codes, 32, 2))
    out.sub_((_planes(thirds, 32, 1) ^ 1) << 2)
    out.view(-1, 16, 16).mul_(scale[:, :, None])


def read_q4_k(blocks: Tensor, out: Tensor) -> None:
    """8 groups: two float16, 6-bit scales and minima [12], 4-bit codes [128]."""
    out.copy_(_planes(blocks[:, 16:144], 32, 4))
    _scale_groups_of_32(blocks, out)


def read_q5_k(blocks: Tensor, out: Tensor) -> None:
    """As Q4_K, with fifth bits [32] before the codes."""
    out.copy_(_planes(blocks[:, 48:176], 32, 4) | (_planes(blocks[:, 16:48], 32, 1) << 4))
    _scale_groups_of_32(blocks, out)


def read_q6_k(blocks: Tensor, out: Tensor) -> None:
    """16 groups: low 4 bits [128], high 2 bits [64], int8 scales [16], a float16."""
    low = _planes(blocks[:, :128], 64, 4)
    high = _planes(blocks[:, 128:192], 32, 2)
    out.copy_(low | (high << 4))
    scale = half(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    out.sub_(32).view(-1, 16, 16).mul_(scale[:, :, None])


def _planes(codes: Tensor, run: int, bits: int) -> Tensor:
    """Codes of `bits` bits, in the order that ggml stores them: uint8 [N, bytes * 8 / bits].

    Each run of `run` bytes holds the lowest bits of its first `run` numbers, the next bits of the
    next `run`, and so on.
    """
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)[:, None]
    runs = codes.reshape(len(codes), -1, 1, run)
    return ((runs >> shifts) & ((1 << bits) - 1)).flatten(1)


def _scale_groups_of_32(blocks: Tensor, out: Tensor) -> None:
    """Apply the scales and minima of Q4_K and Q5_K: bytes 4 to 15 of a block.

    Groups 0 to 3 have their low six bits in the first eight bytes; groups 4 to 7 have four bits
    in the last four bytes and two in the tops of the first eight.
    """
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((first & 0x3F, (third & 0x0F) | ((first >> 2) & 0x30)), dim=-1)
    minima = torch.cat((second & 0x3F, (third >> 4) | ((second >> 2) & 0x30)), dim=-1)
    scale, least = half(blocks, 0) * scales, half(blocks, 2) * minima
    groups = out.view(-1, 8, 32)
    groups.mul_(scale[:, :, None]).sub_(least[:, :, None])

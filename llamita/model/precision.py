"""Matrix products for reading: above all, of half precision on processors that cannot multiply it.

Without bfloat16 instructions PyTorch multiplies bfloat16 matrices many times slower than float32.
Reading them stays cheap: few rows are bound by memory, where half the bytes is half the time. So
products of more rows widen the weights block by block, on the way through the cache, and round the
result where the narrow product would have: both accumulate in float32.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from torch import Tensor

_FEW_ROWS = 2  # so few are bound by memory, also where multiplying is slow
_SKINNY = 5  # up to so many rows, BLAS is faster with the long side of the product first
_SLOW = {torch.float32: False, torch.float64: False}
_BLOCK = 1 << 20  # weights widened at a time: 4 MB, which stays in the cache


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` of x [N, C] with weight [R, C], in the way that is fastest on this machine.

    Keeps nothing for a backward pass.
    """
    if not wants_float32(x, x.shape[0]):
        return _product(x, weight, bias)
    wide = x.float()
    rows = max(1, _BLOCK // weight.shape[1])
    blocks = range(0, weight.shape[0], rows)
    parts = [_product(wide, weight[start : start + rows].float()) for start in blocks]
    product = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    if bias is not None:
        product += bias
    return product.to(x.dtype)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = x.shape[0]
    if x.device.type != "cpu" or x.dtype != torch.float32 or not 1 <= rows <= _SKINNY:
        return F.linear(x, weight, bias)
    if rows > 1:
        product = torch.mm(weight, x.t()).t().contiguous()
    elif len(weight) % 2 == 0:
        # BLAS leaves one row times a matrix to one thread; two products at once take two.
        halves = weight.view(2, -1, weight.shape[1]).transpose(1, 2)
        product = torch.bmm(x.expand(2, 1, -1), halves).view(1, -1)
    else:
        return F.linear(x, weight, bias)
    return product if bias is None else product.add_(bias)


def wants_float32(x: Tensor, rows: int) -> bool:
    """Whether products of `rows` rows in the precision of `x` are better computed in float32."""
    return rows > _FEW_ROWS and x.device.type == "cpu" and is_slow(x.dtype)


def is_slow(dtype: torch.dtype) -> bool:
    """Whether this processor multiplies matrices of `dtype` far more slowly than of float32.

    Timed, once: the flags that would tell differ between processors and versions of PyTorch.
    """
    if dtype not in _SLOW:
        cpu = torch.device("cpu")
        _SLOW[dtype] = product_seconds(dtype, cpu) > 2 * product_seconds(torch.float32, cpu)
    return _SLOW[dtype]


def product_seconds(
    dtype: torch.dtype, device: torch.device, rows: int = 64, width: int = 256
) -> float:
    """The fastest of several products of [rows, width] and [width, width]."""
    x, weight = (torch.ones(n, width, dtype=dtype, device=device) for n in (rows, width))
    times = []
    for _ in range(6):
        start = time.perf_counter()
        F.linear(x, weight)
        if x.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)

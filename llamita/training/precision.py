"""Which number format to train in, decided by a look at this machine."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

import torch

# Below this gain bfloat16's rounding buys too little. CPUs without its instructions emulate it
# many times slower than float32.
_WORTHWHILE_SPEEDUP = 1.3


def choose_precision(wanted: str, device: torch.device) -> tuple[str, str]:
    """`float32` or `bfloat16`, and the reason in words. `auto` measures a matrix product."""
    if wanted != "auto":
        return wanted, "as asked"
    if device.type == "mps":
        return "float32", "Apple GPUs gain little from bfloat16"
    speedup = _matmul_seconds(torch.float32, device) / _matmul_seconds(torch.bfloat16, device)
    name = "bfloat16" if speedup >= _WORTHWHILE_SPEEDUP else "float32"
    return name, f"bfloat16 matrix products run {speedup:.1f} times as fast as float32's here"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Matrix products in bfloat16 over float32 weights, or nothing for float32."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def _matmul_seconds(dtype: torch.dtype, device: torch.device, size: int = 768) -> float:
    """The fastest of several products of square matrices."""
    a = torch.randn(size, size, device=device).to(dtype)
    best = float("inf")
    for _ in range(6):
        started = time.perf_counter()
        b = a @ a
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
        a.copy_(b.clamp(-1, 1))
    return best

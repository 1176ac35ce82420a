"""Which number format to train in, decided by a look at this machine."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from llamita.model.precision import is_slow, product_seconds

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""The number formats of a recipe's `machine.precision`."""

_WORTHWHILE_SPEEDUP = 1.3  # below this gain bfloat16's rounding buys too little
_WIDTH = 768  # of the matrices that are timed: about that of a model that takes long to train


def choose_precision(wanted: str, device: torch.device) -> tuple[str, str]:
    """`float32` or `bfloat16`, and the reason in words. `auto` measures a matrix product."""
    if wanted != "auto":
        return wanted, "as asked"
    if device.type == "mps":
        return "float32", "Apple GPUs gain little from bfloat16"
    # Emulated, products of the size below would take seconds.
    if device.type == "cpu" and is_slow(torch.bfloat16):
        return "float32", "this processor has no quick bfloat16"
    float32, bfloat16 = (
        product_seconds(dtype, device, _WIDTH, _WIDTH) for dtype in (torch.float32, torch.bfloat16)
    )
    speedup = float32 / bfloat16
    name = "bfloat16" if speedup >= _WORTHWHILE_SPEEDUP else "float32"
    return name, f"bfloat16 matrix products run {speedup:.1f} times as fast as float32's here"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Matrix products in bfloat16 over float32 weights, or nothing for float32."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)

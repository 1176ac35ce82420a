"""Where a model runs and in which precision, from what a person wrote."""

from __future__ import annotations

import torch

from llamita.errors import ConfigError

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def choose_device(wanted: str | torch.device | None) -> torch.device:
    """`wanted`, checked; or a CUDA device if there is one, else the CPU.

    Raises:
        ConfigError: this machine has no such device.
    """
    if wanted is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as cause:
        raise ConfigError(
            f"this machine has no device {str(wanted)!r} that PyTorch can use.",
            hint="Leave the device out to take the best there is.",
        ) from cause
    return device


def parse_dtype(wanted: str | torch.dtype | None, default: str | None = None) -> torch.dtype | None:
    """The floating-point type called `wanted` (or `default`); None where neither names one.

    Raises:
        ConfigError: there is no such type.
    """
    wanted = default if wanted is None else wanted
    if wanted is None:
        return None
    name = str(wanted).removeprefix("torch.")
    if name not in DTYPES:
        raise ConfigError(f"there is no dtype {name!r} for weights; known are {', '.join(DTYPES)}.")
    return DTYPES[name]

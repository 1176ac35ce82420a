"""Rotary scaling in GGUF: keys for linear and YaRN, a tensor of factors for Llama 3's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from llamita.config import ModelConfig
from llamita.errors import CheckpointError
from llamita.formats.foreign_config import refuse_for

SCALING_KEYS = (
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_log_multiplier",
    "rope.scale_linear",
)
_NEUTRAL = {
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
}
"""llama.cpp reads most of these for other architectures only: here it computes these values."""

_BETAS = {"beta_fast": 32.0, "beta_slow": 1.0}
_CLOSE = 2e-6
"""Relative: a few roundings of float32."""


def scaling_of_keys(keys: Mapping[str, Any], source: str) -> dict[str, Any] | None:
    """The `rope_scaling` that metadata asks for; keys stand without their architecture.

    Raises:
        CheckpointError: a scaling that is not computed here.
    """
    # llama.cpp takes a factor without a type for a linear one.
    kind = keys.get("rope.scaling.type", "linear")
    factor = keys.get("rope.scaling.factor") or keys.get("rope.scale_linear") or 1.0
    for key, neutral in _NEUTRAL.items():
        if keys.get(key, neutral) != neutral:
            _refuse(key, keys[key], source, f"only {neutral:g} is computed here")
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        _refuse("rope.scaling.type", kind, source, "known are none, linear and yarn")
    scaling = {"rope_type": "yarn", "factor": factor}
    original = keys.get("rope.scaling.original_context_length")
    if original:
        scaling["original_max_position_embeddings"] = original
    return scaling


def keys_of_scaling(config: ModelConfig) -> dict[str, Any]:
    """The metadata that says the model's scaling, without the architecture; factors are apart."""
    scaling = config.rope_scaling or {}
    if config.rope_type not in ("linear", "yarn"):
        return {}
    keys = {"rope.scaling.type": config.rope_type, "rope.scaling.factor": float(scaling["factor"])}
    if config.rope_type == "yarn":
        original = scaling.get("original_max_position_embeddings", config.max_position_embeddings)
        keys["rope.scaling.original_context_length"] = int(original)
    return keys


def check_scaling(config: ModelConfig, has_frequency_factors: bool, architecture: str) -> None:
    """Refuse a scaling that llama.cpp does not compute for the architecture.

    Raises:
        ConfigError: it names the field and its value.
    """
    scaling = config.rope_scaling or {}
    if config.rope_type == "dynamic":
        refuse_for("GGUF", "rope_scaling", scaling, "llama.cpp has no dynamic scaling")
    if config.rope_type == "llama3" and not has_frequency_factors:
        reason = f"llama.cpp's architecture {architecture} has no llama3 scaling"
        refuse_for("GGUF", "rope_scaling", scaling, reason)
    if config.rope_type == "llama3" and not _comes_back(config):
        reason = "its factors on the frequencies do not tell the scaling, so it could not be read"
        refuse_for("GGUF", "rope_scaling", scaling, reason)
    if config.rope_type != "yarn":
        return
    usual = 0.1 * math.log(max(float(scaling["factor"]), 1.0)) + 1.0
    attention = scaling.get("attention_factor")
    if attention is not None and not math.isclose(attention, usual, rel_tol=1e-6):
        reason = f"llama.cpp computes {usual:.6g} from the factor"
        refuse_for("GGUF", "rope_scaling.attention_factor", attention, reason)
    if attention is None and "mscale" in scaling and "mscale_all_dim" in scaling:
        reason = "llama.cpp computes the magnitude from the factor alone"
        refuse_for("GGUF", "rope_scaling.mscale", scaling["mscale"], reason)
    for name, usual in _BETAS.items():
        if scaling.get(name, usual) != usual:
            reason = f"llama.cpp computes {usual:g}"
            refuse_for("GGUF", f"rope_scaling.{name}", scaling[name], reason)
    if scaling.get("truncate", True) is not True:
        refuse_for("GGUF", "rope_scaling.truncate", False, "llama.cpp always truncates")
    original = scaling.get("original_max_position_embeddings", 0)
    if original != int(original):
        reason = "it is a whole number there"
        refuse_for("GGUF", "rope_scaling.original_max_position_embeddings", original, reason)


def frequency_factors(config: ModelConfig) -> Tensor:
    """What Llama 3's scaling divides each rotary frequency by: float32 [D/2]."""
    scaling = config.rope_scaling or {}
    factor, low, high, original = (
        float(scaling[key])
        for key in (
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        )
    )
    return _factors(_wavelengths(config), factor, low, high, original).float()


def scaling_of_factors(factors: Tensor, config: ModelConfig, source: str) -> dict[str, Any] | None:
    """The llama3 `rope_scaling` whose factors these are, [D/2], for the unscaled `config`.

    Several parameters can give the same factors, and so the same model; the usual ones win.

    Raises:
        CheckpointError: none gives them.
    """
    given = factors.double()
    if given.shape != (config.head_dim // 2,) or not bool((given > 0).all()):
        raise CheckpointError(
            f"{source} holds rotary factors of the shape {list(given.shape)}; there must be "
            f"{config.head_dim // 2}, all above 0."
        )
    if bool((given == 1).all()):
        return None
    wavelengths = _wavelengths(config)
    factor = _short(float(given.max()))
    for low, high, original in _candidates(given, wavelengths, factor):
        made = _factors(wavelengths, factor, low, high, original)
        if torch.allclose(made, given, rtol=_CLOSE, atol=0):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": round(original),
            }
    raise CheckpointError(
        f"{source} holds rotary factors (from {float(given.min()):g} to {float(given.max()):g}) "
        "that no llama3 scaling gives.",
        hint="If you know the model's scaling, pass it: --override rope_scaling='{…}'.",
    )


def _comes_back(config: ModelConfig) -> bool:
    """Whether the factors of a llama3 scaling are read as one that gives them."""
    plain = config.with_changes(rope_scaling=None)
    try:
        scaling_of_factors(frequency_factors(config), plain, "GGUF")
    except CheckpointError:
        return False
    return True


def _candidates(
    given: Tensor, wavelengths: Tensor, factor: float
) -> Iterator[tuple[float, float, float]]:
    """Low and high factor and original context: the usual ones, then what the ramp says."""
    for power in range(6, 21):
        yield 1.0, 4.0, float(1 << power)
    # On the ramp, original / wavelength = low + smooth * (high - low). The three have a common
    # scale that changes nothing; low = 1 fixes it.
    smooth = (1 / given - 1 / factor) / (1 - 1 / factor)
    ramp = (smooth > 1e-3) & (smooth < 1 - 1e-3)
    if int(ramp.sum()) >= 2:
        unknown = torch.stack((1 / wavelengths[ramp], -smooth[ramp]), dim=1)
        solution = torch.linalg.lstsq(unknown, torch.ones(int(ramp.sum()), 1).double()).solution
        original, span = (float(value) for value in solution.flatten())
        yield 1.0, _short(1 + span, digits=4), float(round(original))


def _factors(
    wavelengths: Tensor, factor: float, low: float, high: float, original: float
) -> Tensor:
    """As `llamita.model.rope` scales: 1 for short waves, `factor` for long ones, a ramp between."""
    smooth = ((original / wavelengths - low) / (high - low)).clamp(0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def _wavelengths(config: ModelConfig) -> Tensor:
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    return 2 * math.pi * config.rope_theta**exponents


def _short(number: float, digits: int = 6) -> float:
    """The decimal of so many digits next to a number that carries rounding errors."""
    return float(f"{number:.{digits}g}")


def _refuse(key: str, value: object, source: str, reason: str) -> None:
    raise CheckpointError(
        f"{source} has {key} = {value!r}: {reason}.",
        hint="If you know better, pass --override rope_scaling='{…}' or rope_scaling=null.",
    )

"""Rotary position embeddings (arXiv:2104.09864) with HuggingFace's scalings, half-split.

Tables are always float32 and never saved: rounded to bfloat16, neighbouring positions beyond a few
hundred become the same position.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from llamita.config import ModelConfig


class RotaryEmbedding:
    """The angles of one configuration.

    Not a module: it owns no weights and moves with the positions it is asked about. The plain
    frequencies, [D/2] float32, are computed once.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.is_dynamic = config.rope_type == "dynamic"
        self.inverse_frequencies, self.magnitude = _frequencies(config)

    def tables(self, positions: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Cosines and sines for `positions` [B, T], each [B, T, D], float32.

        `lengths` [B] are the numbers of positions each row has in all; only dynamic scaling, whose
        base grows with the length, looks at them. Left out, a row ends at its highest position.
        """
        inverse = self.inverse_frequencies
        if inverse.device != positions.device:
            inverse = self.inverse_frequencies = inverse.to(positions.device)
        if self.is_dynamic:
            lengths = positions.amax(-1) + 1 if lengths is None else lengths
            angles = positions.float()[..., None] * self._dynamic_frequencies(lengths)[:, None]
        else:
            angles = positions.float()[..., None] * inverse
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos() * self.magnitude, angles.sin() * self.magnitude

    def reading_tables(self, positions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """As `turn_` takes them: [N, 1, D] for positions [N] in rows of `lengths` [N]."""
        cos, sin = self.tables(positions[:, None], lengths)
        sin[..., : sin.shape[-1] // 2].neg_()
        return cos, sin

    def _dynamic_frequencies(self, lengths: Tensor) -> Tensor:
        """NTK-aware base for each row's length [B] -> [B, D/2]; unscaled within the context."""
        config, scaling = self.config, self.config.rope_scaling or {}
        original, factor = config.max_position_embeddings, float(scaling["factor"])
        ratio = lengths.clamp(min=original).float() / original
        growth = (factor * ratio - (factor - 1)) ** (config.head_dim / (config.head_dim - 2))
        base = float(config.rope_theta) * growth
        return 1.0 / base[:, None] ** _exponents(config.head_dim).to(base.device)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + D/2) of `x` [B, H, T, D] by the angles of `cos` and `sin` [B, T, D].

    Computed in float32, given back in the dtype of `x`. For whole rows, and where gradients are
    wanted; `turn_` is for reading alone.
    """
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x * cos[:, None] + turned * sin[:, None]).to(x.dtype)


def turn_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """`rotate` for reading alone: x [N, H, D] is overwritten, which a backward pass would not bear.

    `cos` and `sin` are [N, 1, D], with the sines of the first half negated (`reading_tables`).
    """
    wide = x.float()
    other = wide.roll(x.shape[-1] // 2, -1)
    wide.mul_(cos).addcmul_(other, sin)
    if wide is not x:
        x.copy_(wide)


def _exponents(head_dim: int) -> Tensor:
    return torch.arange(0, head_dim, 2, dtype=torch.int64, device="cpu").float() / head_dim


def _frequencies(config: ModelConfig) -> tuple[Tensor, float]:
    """Inverse frequencies [D/2] and the factor on cosines and sines, for a fixed scaling."""
    plain = 1.0 / float(config.rope_theta) ** _exponents(config.head_dim)
    scaling = config.rope_scaling or {}
    match config.rope_type:
        case "linear":
            return plain / float(scaling["factor"]), 1.0
        case "llama3":
            return _llama3(plain, scaling), 1.0
        case "yarn":
            return _yarn(plain, config, scaling)
        case _:
            return plain, 1.0


def _llama3(plain: Tensor, scaling: dict[str, float]) -> Tensor:
    """Llama 3.1: long wavelengths divided by the factor, short ones kept, a ramp between."""
    factor = float(scaling["factor"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    original = float(scaling["original_max_position_embeddings"])
    wavelengths = 2 * math.pi / plain
    smooth = (original / wavelengths - low) / (high - low)
    blended = (1 - smooth) * plain / factor + smooth * plain
    scaled = torch.where(wavelengths > original / low, plain / factor, blended)
    return torch.where(wavelengths < original / high, plain, scaled)


def _yarn(plain: Tensor, config: ModelConfig, scaling: dict[str, float]) -> tuple[Tensor, float]:
    """YaRN (arXiv:2309.00071): interpolate slow dimensions, keep fast ones, soften attention."""
    original = float(
        scaling.get("original_max_position_embeddings", config.max_position_embeddings)
    )
    factor = float(scaling["factor"])
    dim, base = config.head_dim, config.rope_theta

    def dimension_of(rotations: float) -> float:
        """The dimension that turns `rotations` times over the original context."""
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = dimension_of(float(scaling.get("beta_fast", 32)))
    high = dimension_of(float(scaling.get("beta_slow", 1)))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(dim // 2, device="cpu").float() - low) / (high - low)).clamp(0, 1)
    frequencies = plain / factor * ramp + plain * (1 - ramp)
    return frequencies, _yarn_magnitude(factor, scaling)


def _yarn_magnitude(factor: float, scaling: dict[str, float]) -> float:
    if "attention_factor" in scaling:
        return float(scaling["attention_factor"])

    def magnitude(mscale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0

    if "mscale" in scaling and "mscale_all_dim" in scaling:
        return magnitude(float(scaling["mscale"])) / magnitude(float(scaling["mscale_all_dim"]))
    return magnitude(1.0)

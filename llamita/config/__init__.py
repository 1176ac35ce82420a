"""What a model is (`ModelConfig`), shapes by name (`preset`) and by size (`shape_for`)."""

from __future__ import annotations

from llamita.config.model_config import FIELD_NAMES, ROPE_TYPES, ModelConfig
from llamita.config.presets import PRESETS, preset
from llamita.config.sizes import parse_size, shape_for

__all__ = [
    "FIELD_NAMES",
    "PRESETS",
    "ROPE_TYPES",
    "ModelConfig",
    "parse_size",
    "preset",
    "shape_for",
]

"""Shapes to train from scratch, by name: small ones of our own and those of known families.

A preset gives widths, depth, heads and the numbers that belong to them (rotary base, epsilon, tied
or not). The vocabulary comes from the tokenizer and the context from the batch, so a preset has its
family's published parameter count exactly where it meets that family's vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llamita.config.model_config import ModelConfig
from llamita.errors import ConfigError


@dataclass(frozen=True)
class _Shape:
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    others: dict[str, Any] = field(default_factory=dict)


_SMOLLM2 = {"rms_norm_eps": 1e-5, "rope_theta": 100000.0}
_LLAMA = {"rms_norm_eps": 1e-5, "tie_word_embeddings": False}
_LLAMA_3 = {**_LLAMA, "rope_theta": 500000.0}

_SHAPES: dict[str, _Shape] = {
    "tiny": _Shape(64, 192, 2, 2, 2),
    "demo": _Shape(256, 704, 4, 4, 4),
    "small": _Shape(384, 1024, 6, 6, 6),
    "medium": _Shape(512, 1408, 8, 8, 8),
    "large": _Shape(768, 2048, 12, 12, 12),
    "armgpt-tiny": _Shape(64, 192, 1, 2, 2),
    "armgpt-small": _Shape(384, 1024, 6, 6, 6),
    "armgpt-medium": _Shape(512, 1408, 8, 8, 8),
    "armgpt-large": _Shape(768, 2048, 12, 12, 12),
    "armgpt-xlarge": _Shape(1024, 2752, 24, 16, 16),
    "armgpt-xxlarge": _Shape(1280, 3456, 28, 20, 20),
    "armgpt-giant": _Shape(1536, 4096, 32, 24, 24),
    "hermes-270m": _Shape(1024, 2816, 21, 16, 4),
    "hermes-500m": _Shape(1536, 4096, 24, 24, 6),
    "hermes-1b": _Shape(2048, 5632, 22, 32, 4),
    "hermes-gemma-3-1b": _Shape(2048, 8192, 26, 16, 8),
    "hermes-gemma-2-2b": _Shape(2560, 9216, 26, 16, 2),
    "smollm2-135m": _Shape(576, 1536, 30, 9, 3, _SMOLLM2),
    "smollm2-360m": _Shape(960, 2560, 32, 15, 5, _SMOLLM2),
    "smollm2-1.7b": _Shape(2048, 8192, 24, 32, 32, {**_SMOLLM2, "rope_theta": 130000.0}),
    "tinyllama-1.1b": _Shape(2048, 5632, 22, 32, 4, _LLAMA),
    "llama-2-7b": _Shape(4096, 11008, 32, 32, 32, _LLAMA),
    "llama-2-13b": _Shape(5120, 13824, 40, 40, 40, _LLAMA),
    "llama-2-70b": _Shape(8192, 28672, 80, 64, 8, _LLAMA),
    "llama-3-8b": _Shape(4096, 14336, 32, 32, 8, _LLAMA_3),
    "llama-3-70b": _Shape(8192, 28672, 80, 64, 8, _LLAMA_3),
    "llama-3.2-1b": _Shape(2048, 8192, 16, 32, 8, {**_LLAMA_3, "tie_word_embeddings": True}),
    "llama-3.2-3b": _Shape(3072, 8192, 28, 24, 8, {**_LLAMA_3, "tie_word_embeddings": True}),
}
PRESETS = tuple(_SHAPES)


def preset(name: str, vocab_size: int, **fields: Any) -> ModelConfig:
    """The shape of that name for a vocabulary, with other fields set or overridden.

    Raises:
        ConfigError: there is no such preset or field, or a value cannot be.
    """
    if name not in _SHAPES:
        raise ConfigError(
            f"there is no preset {name!r}.",
            hint=f"Presets are: {', '.join(PRESETS)}. Any other size: --params 10m",
        )
    shape = _SHAPES[name]
    config = ModelConfig(
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_key_value_heads,
        **shape.others,
    )
    return config.with_changes(**fields)

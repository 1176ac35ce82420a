"""A `ModelConfig` as the metadata of a GGUF file, and what cannot be said there."""

from __future__ import annotations

from typing import Any

from llamita.config import ModelConfig
from llamita.errors import ConfigError
from llamita.formats.foreign_config import refuse_for
from llamita.formats.gguf_config import FIELDS, HEAD_SIZES
from llamita.formats.gguf_rope import check_scaling, keys_of_scaling
from llamita.formats.gguf_tensors import LLAMA, QWEN2, QWEN3, Architecture

FLOATS = ("rms_norm_eps", "rope_theta")


def architecture_for(config: ModelConfig) -> Architecture:
    """The architecture that a model is written as: the plainest that can hold it.

    Raises:
        ConfigError: llama.cpp has none for its biases and norms.
    """
    if config.use_qk_norm:
        for field in ("attention_bias", "attention_output_bias", "mlp_bias"):
            if getattr(config, field):
                refuse_for("GGUF", field, True, "a model with use_qk_norm is Qwen3's, without bias")
        return QWEN3
    plain = config.num_attention_heads * config.head_dim == config.hidden_size
    only_qkv = not config.attention_output_bias and not config.mlp_bias
    if config.attention_bias and only_qkv and plain and config.rope_type != "llama3":
        return QWEN2
    return LLAMA


def check_config(config: ModelConfig) -> None:
    """Refuse what GGUF cannot say or llama.cpp would not compute.

    Raises:
        ConfigError: it names the field and its value.
    """
    architecture = architecture_for(config)
    window = config.sliding_window
    if window is not None and window < config.max_position_embeddings:
        reason = f"llama.cpp's architecture {architecture.name} attends to everything"
        refuse_for("GGUF", "sliding_window", window, reason)
    check_scaling(config, architecture.has_frequency_factors, architecture.name)
    if len(config.eos_token_ids) > 3:
        raise ConfigError(
            f"eos_token_id is {list(config.eos_token_ids)}; GGUF names three tokens that end a "
            "turn at most (eos, eot, eom).",
            hint="Leave out those that never end one: --override eos_token_id='[…]'.",
        )


def config_entries(config: ModelConfig) -> dict[str, Any]:
    """The `<architecture>.*` keys of a model; numbers that must be float32 are Python floats."""
    prefix = f"{architecture_for(config).name}."
    entries: dict[str, Any] = {"vocab_size": config.vocab_size}
    for field, key in FIELDS.items():
        value = getattr(config, field)
        entries[key] = float(value) if field in FLOATS else value
    entries.update(dict.fromkeys(HEAD_SIZES, config.head_dim))
    entries.update(keys_of_scaling(config))
    return {prefix + key: value for key, value in entries.items()}

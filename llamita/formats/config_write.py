"""A `ModelConfig` as the `config.json` that every reader of HuggingFace directories takes.

The architecture is the plainest one that says the whole function; what none of them can say is
refused before anything is written.
"""

from __future__ import annotations

from typing import Any

from llamita.config import ModelConfig
from llamita.errors import ConfigError
from llamita.formats.families import FAMILIES


def config_to_json(config: ModelConfig, dtype: str) -> dict[str, Any]:
    """The content of `config.json`; `dtype` is the weights', as in "float32".

    Rotary settings are in the older spelling, which old and new readers take. `residual_dropout`
    is no part of the function and no reader needs it; it is kept, when it is not zero, so that
    training can go on from the directory.

    Raises:
        ConfigError: no known architecture has this combination of settings.
    """
    model_type = model_type_of(config)
    eos = config.eos_token_id
    content: dict[str, Any] = {
        "architectures": [FAMILIES[model_type].architecture],
        "model_type": model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope_theta,
        "rope_scaling": config.rope_scaling,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "attention_dropout": config.attention_dropout,
        "initializer_range": config.initializer_range,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": list(eos) if isinstance(eos, tuple) else eos,
        "pad_token_id": config.pad_token_id,
        "use_cache": True,
        "torch_dtype": dtype,
    }
    if config.residual_dropout:
        content["residual_dropout"] = config.residual_dropout
    keys = FAMILIES[model_type].keys
    for key in ("attention_bias", "mlp_bias"):
        if key in keys:
            content[key] = getattr(config, key)
    if "use_sliding_window" in keys:
        content.update(_qwen_window(config))
    elif "sliding_window" in keys:
        content["sliding_window"] = config.sliding_window
    return content


def model_type_of(config: ModelConfig) -> str:
    """The `model_type` that expresses `config`: a key of `FAMILIES`.

    Raises:
        ConfigError: none does; the message names the fields that no architecture joins.
    """
    biases = config.attention_bias or bool(config.attention_output_bias)
    # transformers refuses a Llama whose width its heads do not divide, whatever the head_dim.
    divides = config.hidden_size % config.num_attention_heads == 0
    if config.use_qk_norm:
        model_type = "qwen3"
    elif config.attention_bias and not config.attention_output_bias:
        model_type = "qwen2"
    elif config.sliding_window is not None or not (divides or biases or config.mlp_bias):
        model_type = "mistral"
    else:
        model_type = "llama"
    unsaid = _what_it_cannot_say(model_type, config)
    if not divides and model_type == "llama":
        unsaid.append(
            f"hidden_size {config.hidden_size} with num_attention_heads "
            f"{config.num_attention_heads}, which does not divide it"
        )
    if unsaid:
        raise ConfigError(
            f"no HuggingFace architecture joins these settings: {_reason(model_type, config)}, and "
            f"{FAMILIES[model_type].architecture} has no {', no '.join(unsaid)}.",
            hint="Change one of the two; nothing was written.",
        )
    return model_type


def _what_it_cannot_say(model_type: str, config: ModelConfig) -> list[str]:
    keys, always = FAMILIES[model_type].keys, FAMILIES[model_type].always
    unsaid = []
    if "attention_bias" not in {*keys, *always} and config.attention_bias:
        unsaid.append("attention_bias")
    wanted_output = always.get(
        "attention_output_bias", config.attention_bias if "attention_bias" in keys else False
    )
    if config.attention_output_bias != wanted_output and "attention_bias" not in unsaid:
        unsaid.append(f"attention_output_bias {config.attention_output_bias} beside that")
    if "mlp_bias" not in keys and config.mlp_bias:
        unsaid.append("mlp_bias")
    return unsaid


def _reason(model_type: str, config: ModelConfig) -> str:
    if model_type == "qwen3":
        return "use_qk_norm is true"
    if model_type == "qwen2":
        return "attention_bias is true without attention_output_bias"
    if model_type == "mistral" and config.sliding_window is not None:
        return f"sliding_window is {config.sliding_window}"
    return f"attention_bias is {config.attention_bias}, mlp_bias is {config.mlp_bias}"


def _qwen_window(config: ModelConfig) -> dict[str, Any]:
    """Qwen's windows start at a layer: 0 for all of them, past the last for none."""
    layers = config.num_hidden_layers
    has_window = config.sliding_window is not None
    return {
        "use_sliding_window": has_window,
        "sliding_window": config.sliding_window,
        "max_window_layers": 0 if has_window else layers,
        "layer_types": ["sliding_attention" if has_window else "full_attention"] * layers,
    }

"""Meta's `params.json`, both ways, and what it leaves unsaid.

It lacks the context length and the scaling of rotary positions: both follow from the generation
of the model. What the rules below do not give stands in `llamita.json` beside it, which Meta's
loader does not look at (a key more in `params.json` would stop it).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llamita.config import ModelConfig
from llamita.errors import CheckpointError
from llamita.files import read_json
from llamita.formats.foreign_config import read_fields, refuse_for, whole_number

PARAMS, UNSAID = "params.json", "llamita.json"

FIELDS = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "vocab_size": "vocab_size",
    "norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
    "max_seq_len": "max_position_embeddings",
    # Written by others who use Meta's names:
    "head_dim": "head_dim",
    "hidden_dim": "intermediate_size",
}
_OWN = (
    "multiple_of",
    "ffn_dim_multiplier",
    "use_scaled_rope",
    "rope_scaling_factor",
    "rope_high_freq_factor",
)
_HARMLESS = ("max_batch_size", "model_parallel_size", "use_cache", "torch_dtype", "dtype")
_UNSAID_FIELDS = ("max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")

_PLAIN_THETA, _LLAMA3_THETA, _CODE_LLAMA_THETA = 10000.0, 500000.0, 1000000.0
_ORIGINAL_CONTEXT = 8192
_LLAMA32_WIDTHS = (2048, 3072)
"""The widths of the 1B and the 3B of Llama 3.2, whose rotary positions are scaled by 32."""


def read_params(
    directory: Path,
    overrides: Mapping[str, Any] | None,
    vocab_size: int,
    inner: int,
    is_tied: bool,
) -> ModelConfig:
    """The config that a Meta folder describes.

    Args:
        overrides: `ModelConfig` fields or keys of `params.json` that win over the file's.
        vocab_size, inner, is_tied: what the tensors tell: their shapes, and whether the head is
            the embedding.

    Raises:
        CheckpointError, ConfigError: a key is missing, unknown, or contradicts the tensors.
    """
    path = directory / PARAMS
    raw = _read_object(path)
    fields, own = read_fields(raw, overrides, path, FIELDS, _OWN, _HARMLESS)
    missing = [key for key in ("dim", "n_layers", "n_heads") if FIELDS[key] not in fields]
    if missing:
        raise CheckpointError(
            f"{path} lacks {', '.join(missing)}.",
            hint="Say what is missing with --override KEY=VALUE.",
        )
    width = whole_number(fields, "hidden_size")
    if fields.get("vocab_size", -1) == -1:
        fields["vocab_size"] = vocab_size
    if "intermediate_size" not in fields:
        _check_inner(own, width, inner, path)
        fields["intermediate_size"] = inner
    scaled = own.get("use_scaled_rope", False)
    if not isinstance(scaled, bool):
        raise CheckpointError(f"use_scaled_rope is {scaled!r} in {path}; it is true or false.")
    fields.setdefault("rope_theta", _LLAMA3_THETA if scaled else _PLAIN_THETA)
    fields.setdefault("rms_norm_eps", 1e-5)
    if scaled and "rope_scaling" not in fields:
        fields["rope_scaling"] = scaling_of(
            width, own.get("rope_scaling_factor"), own.get("rope_high_freq_factor")
        )
    fields.setdefault("tie_word_embeddings", is_tied)
    for name, value in _read_unsaid(directory).items():
        if name not in (overrides or {}):
            fields[name] = value
    config = ModelConfig(**fields)
    if "max_position_embeddings" in fields:
        return config
    return config.with_changes(max_position_embeddings=context_of(config))


def check_params(config: ModelConfig) -> None:
    """Raise ConfigError where Meta's model cannot be `config`."""
    heads, width = config.num_attention_heads, config.hidden_size
    for name in ("attention_bias", "attention_output_bias", "mlp_bias", "use_qk_norm"):
        if getattr(config, name):
            refuse_for("Meta", name, True, "it is always false there")
    if config.sliding_window is not None:
        refuse_for("Meta", "sliding_window", config.sliding_window, "there is none there")
    if config.head_dim * heads != width:
        reason = f"it is always dim / n_heads there ({width} / {heads})"
        refuse_for("Meta", "head_dim", config.head_dim, reason)
    if config.rope_scaling not in (None, scaling_of(width)):
        reason = f"at this width it is none or {scaling_of(width)} there"
        refuse_for("Meta", "rope_scaling", config.rope_scaling, reason)


def write_params(config: ModelConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of `params.json`, and what it leaves unsaid for `llamita.json`."""
    multiple_of, multiplier = _solve_inner(config.hidden_size, config.intermediate_size)
    params: dict[str, Any] = {
        "dim": config.hidden_size,
        "n_layers": config.num_hidden_layers,
        "n_heads": config.num_attention_heads,
    }
    if config.num_key_value_heads != config.num_attention_heads:
        params["n_kv_heads"] = config.num_key_value_heads
    params["vocab_size"] = config.vocab_size
    params["multiple_of"] = multiple_of
    if multiplier is not None:
        params["ffn_dim_multiplier"] = multiplier
    params["norm_eps"] = config.rms_norm_eps
    # Meta's Llama 2 code knows no rope_theta, and its Llama 3 code has another default.
    if config.rope_theta != _PLAIN_THETA or config.rope_scaling is not None:
        params["rope_theta"] = config.rope_theta
    if config.rope_scaling is not None:
        params["use_scaled_rope"] = True
    unsaid: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value
        for name in _UNSAID_FIELDS
        if (value := getattr(config, name)) is not None
    }
    if config.max_position_embeddings == context_of(config):
        del unsaid["max_position_embeddings"]
    return params, unsaid


def context_of(config: ModelConfig) -> int:
    """The context length of the generation that such a config belongs to.

    Llama 1 and 2 differ in nothing but the epsilon, and the 65B of Llama 1 has Llama 2's.
    """
    if config.rope_scaling is not None:
        return 131072
    if config.rope_theta == _LLAMA3_THETA:
        return 8192
    if config.rope_theta == _CODE_LLAMA_THETA:
        return 16384
    is_65b = config.hidden_size == 8192 and config.num_key_value_heads == 64
    return 4096 if config.rms_norm_eps == 1e-5 and not is_65b else 2048


def is_llama3(config: ModelConfig) -> bool:
    """Whether the config is of the third generation, which splits embeddings by rows."""
    return config.rope_theta == _LLAMA3_THETA or config.rope_scaling is not None


def scaling_of(width: int, factor: Any = None, high: Any = None) -> dict[str, Any]:
    """What `use_scaled_rope` means at a width."""
    return {
        "rope_type": "llama3",
        "factor": factor or (32.0 if width in _LLAMA32_WIDTHS else 8.0),
        "low_freq_factor": 1.0,
        "high_freq_factor": high or 4.0,
        "original_max_position_embeddings": _ORIGINAL_CONTEXT,
    }


def feed_forward_width(dim: int, multiple_of: int, multiplier: float | None) -> int:
    """int(2 × 4 × dim / 3), times the multiplier and int again, up to the multiple."""
    inner = int(2 * 4 * dim / 3)
    if multiplier is not None:
        inner = int(multiplier * inner)
    return -(-inner // multiple_of) * multiple_of


def _check_inner(own: Mapping[str, Any], width: int, inner: int, path: Path) -> None:
    """The formula must give what the tensors have; without `multiple_of` they alone count."""
    if "multiple_of" not in own:
        return
    multiple_of = whole_number(own, "multiple_of")
    multiplier = own.get("ffn_dim_multiplier")
    is_number = isinstance(multiplier, (int, float)) and not isinstance(multiplier, bool)
    if multiplier is not None and not (is_number and 0 < multiplier < 1e6):
        raise CheckpointError(f"ffn_dim_multiplier is {multiplier!r} in {path}; it is a number.")
    wanted = feed_forward_width(width, multiple_of, multiplier)
    if wanted != inner:
        raise CheckpointError(
            f"{path} gives a feed-forward width of {wanted} (multiple_of {multiple_of}, "
            f"ffn_dim_multiplier {multiplier}), but w1 has {inner} rows.",
            hint=f"If the weights are right, pass --override intermediate_size={inner}.",
        )


def _solve_inner(width: int, inner: int) -> tuple[int, float | None]:
    """A `multiple_of` and a multiplier that give `inner`: round ones where there are any."""
    for multiple_of in (256, 128, 64, 32, 16, 8, 4, 2, 1):
        if feed_forward_width(width, multiple_of, None) == inner:
            return multiple_of, None
    ratio = (inner + 0.5) / int(2 * 4 * width / 3)
    for digits in range(1, 17):
        for multiple_of in (4096, 1024, 256, 64, 1):
            for step in (0, -1):
                multiplier = round(ratio + step * 10.0**-digits, digits)
                if multiplier > 0 and feed_forward_width(width, multiple_of, multiplier) == inner:
                    return multiple_of, multiplier
    return 1, ratio


def _read_unsaid(directory: Path) -> dict[str, Any]:
    path = directory / UNSAID
    if not path.exists():
        return {}
    content = _read_object(path)
    unknown = [key for key in content if key not in _UNSAID_FIELDS]
    if unknown:
        raise CheckpointError(f"{path} has the key {unknown[0]!r}, which is not known here.")
    return content


def _read_object(path: Path) -> dict[str, Any]:
    content = read_json(path, CheckpointError)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object.")
    return content

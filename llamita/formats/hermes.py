"""Hermes' checkpoints: `{"model": state dict, "config": …}`, or a bare state dict.

Its names and its half-split rotary positions are HuggingFace's. The head is saved even where it is
tied. A bare state dict says everything but how its rows divide into heads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError
from llamita.formats.checkpoint import EMBEDDING, HEAD, Checkpoint, match_tensors
from llamita.formats.foreign_config import read_fields, refuse_for, whole_number
from llamita.formats.key_map import Rule, map_to_foreign, map_to_native
from llamita.formats.stored import StoredTensor
from llamita.formats.torch_checkpoint import (
    TorchCheckpoint,
    count_layers,
    open_torch_checkpoint,
    shape_of,
)
from llamita.formats.torch_write import cast_all, write_torch_file

RULES = (
    Rule(EMBEDDING, "embed_tokens.weight"),
    *(
        Rule(f"model.layers.{{layer}}.{name}.weight", f"layers.{{layer}}.{name}.weight")
        for name in (
            "input_layernorm",
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            "self_attn.o_proj",
            "post_attention_layernorm",
            "mlp.gate_proj",
            "mlp.up_proj",
            "mlp.down_proj",
        )
    ),
    Rule("model.norm.weight", "norm.weight"),
    Rule(HEAD, "lm_head.weight"),
)

FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "max_seq_len": "max_position_embeddings",
    "rope_theta": "rope_theta",
    "rms_norm_eps": "rms_norm_eps",
    "tie_embeddings": "tie_word_embeddings",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
}
"""Hermes' config keys, in its order, and the fields that they are."""

_HARMLESS = ("name", "model_name", "model_type", "dtype", "torch_dtype", "use_cache")
_TRAINING = {
    "dropout": "residual_dropout",
    "attention_dropout": "attention_dropout",
    "initializer_range": "initializer_range",
}
_DEFAULTS = {"max_position_embeddings": 4096, "rope_theta": 10000.0, "rms_norm_eps": 1e-6}
_TOKEN_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Preset:
    """A shape that Hermes trains. Its vocabulary is read off the weights."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 4096

    def widths(self) -> dict[str, int]:
        """What the shapes of weights tell of it."""
        return {
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "query rows": self.num_attention_heads * self.head_dim,
            "key rows": self.num_key_value_heads * self.head_dim,
        }


PRESETS = {
    "270m": Preset(1024, 2816, 21, 16, 4, 64),
    "500m": Preset(1536, 4096, 24, 24, 6, 64),
    "1b": Preset(2048, 5632, 22, 32, 4, 64),
    "gemma-3-1b": Preset(2048, 8192, 26, 16, 8, 128, 8192),
    "gemma-2-2b": Preset(2560, 9216, 26, 16, 2, 160, 8192),
}


def read_hermes(
    source: Path | TorchCheckpoint,
    overrides: Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
) -> Checkpoint:
    """Read a Hermes checkpoint.

    Args:
        overrides: `ModelConfig` fields or keys of Hermes' config that win over the file's.
        preset: the shape of a bare state dict, by its name in `PRESETS`; left out, a preset that
            fits the weights' shapes is taken.

    Raises:
        CheckpointError, ConfigError: the file is damaged, says what cannot be honoured, or does
            not say how many heads there are.
    """
    opened = source if isinstance(source, TorchCheckpoint) else open_torch_checkpoint(source)
    config = _read_config(opened, overrides, preset)
    tensors = map_to_native(RULES, opened.tensors, config, opened.path)
    described_by = "its config" if opened.config else "the shape chosen for it"
    return Checkpoint(
        config,
        match_tensors(config, tensors, opened.path, described_by),
        opened.path,
        format="hermes",
        tokenizer=opened.path.parent,
        chat_format="chatml-tools",
    )


def check_hermes(config: ModelConfig) -> None:
    """Raise ConfigError where Hermes' model cannot be `config`."""
    for name, plain in (
        ("use_qk_norm", False),
        ("attention_bias", False),
        ("attention_output_bias", False),
        ("mlp_bias", False),
        ("sliding_window", None),
        ("rope_scaling", None),
    ):
        if getattr(config, name) != plain:
            refuse_for(
                "Hermes", name, getattr(config, name), f"it is always {json.dumps(plain)} there"
            )
    if isinstance(config.eos_token_id, tuple):
        refuse_for("Hermes", "eos_token_id", config.eos_token_id, "it holds one id")


def write_hermes(
    checkpoint: Checkpoint, destination: Path, dtype: torch.dtype | None = None
) -> None:
    """Write `{"model", "config"}` to `destination`, one tensor in memory at a time.

    Args:
        dtype: of the weights on disk; left out, each tensor's own.

    Raises:
        ConfigError: Hermes' model cannot be this one; nothing was written.
    """
    config = checkpoint.config
    check_hermes(config)
    tensors = cast_all(checkpoint.tensors, dtype)
    if config.tie_word_embeddings:
        tensors[HEAD] = tensors[EMBEDDING]
    content = {
        "model": map_to_foreign(RULES, tensors, config),
        "config": {key: getattr(config, field) for key, field in FIELDS.items()},
    }
    write_torch_file(content, destination)


def _read_config(
    opened: TorchCheckpoint, overrides: Mapping[str, Any] | None, preset: str | None
) -> ModelConfig:
    if opened.config and preset is not None:
        raise ConfigError(
            f"{opened.path} says its shape itself; the preset {preset!r} is for bare weights.",
            hint="Leave --preset out; --override KEY=VALUE changes single settings.",
        )
    widths = _widths(opened)
    vocab_size = widths.pop("vocab_size")
    names = {**FIELDS, **_TRAINING}
    fields, _ = read_fields(opened.config or {}, overrides, opened.path, names, harmless=_HARMLESS)
    _divide_into_heads(fields, widths, opened.path, preset)
    for name in ("hidden_size", "intermediate_size", "num_hidden_layers"):
        fields.setdefault(name, widths[name])
    fields.setdefault("vocab_size", vocab_size)
    fields = {**_DEFAULTS, **fields}
    for name, token_id in _TOKEN_IDS.items():
        if token_id < vocab_size:
            fields.setdefault(name, token_id)
    if "tie_word_embeddings" not in fields:
        fields["tie_word_embeddings"] = _is_tied(opened.tensors)
    return ModelConfig(**fields)


def _widths(opened: TorchCheckpoint) -> dict[str, int]:
    """What the shapes tell: see `Preset.widths`, and the vocabulary."""
    tensors, path = opened.tensors, opened.path
    embedding = "embed_tokens.weight" if "embed_tokens.weight" in tensors else "lm_head.weight"
    vocab_size, hidden_size = shape_of(tensors, embedding, path)
    first = "layers.0"
    return {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": shape_of(tensors, f"{first}.mlp.gate_proj.weight", path)[0],
        "num_hidden_layers": count_layers(tensors, "layers.", ".self_attn.q_proj.weight"),
        "query rows": shape_of(tensors, f"{first}.self_attn.q_proj.weight", path)[0],
        "key rows": shape_of(tensors, f"{first}.self_attn.k_proj.weight", path)[0],
    }


def _divide_into_heads(
    fields: dict[str, Any], widths: Mapping[str, int], path: Path, preset: str | None
) -> None:
    """Set the head counts and head_dim, from what is known of them, a preset, or an error."""
    if preset is not None:
        chosen = find_preset(preset)
        wrong = [
            f"{name} is {widths[name]}, not {value}"
            for name, value in chosen.widths().items()
            if widths[name] != value
        ]
        if wrong:
            raise ConfigError(
                f"the weights in {path} are not of the preset {preset!r}: {'; '.join(wrong)}.",
                hint=f"Presets are: {', '.join(PRESETS)}.",
            )
    elif "num_attention_heads" not in fields and "head_dim" not in fields:
        fitting = [known for known in PRESETS.values() if known.widths() == widths]
        if not fitting:
            shown = ", ".join(f"{name} {value}" for name, value in widths.items())
            raise CheckpointError(
                f"{path} does not say how many heads its model has, and shapes cannot tell "
                f"({shown}); no preset has these.",
                hint="Say it with --override num_attention_heads=N. "
                f"Presets are: {', '.join(PRESETS)}.",
            )
        [chosen] = fitting
    else:
        rows = widths["query rows"]
        if "head_dim" not in fields:
            fields["head_dim"] = _divide(rows, fields, "num_attention_heads", path)
        if "num_attention_heads" not in fields:
            fields["num_attention_heads"] = _divide(rows, fields, "head_dim", path)
        if "num_key_value_heads" not in fields:
            rows = widths["key rows"]
            fields["num_key_value_heads"] = _divide(rows, fields, "head_dim", path)
        return
    fields.setdefault("num_attention_heads", chosen.num_attention_heads)
    fields.setdefault("num_key_value_heads", chosen.num_key_value_heads)
    fields.setdefault("head_dim", chosen.head_dim)
    fields.setdefault("max_position_embeddings", chosen.max_position_embeddings)


def _divide(rows: int, fields: Mapping[str, Any], name: str, path: Path) -> int:
    count = whole_number(fields, name)
    if rows % count:
        raise CheckpointError(f"{path} has {rows} rows of heads, which {name} {count} cannot be.")
    return rows // count


def find_preset(name: str) -> Preset:
    """The preset of that name, with or without `hermes-` before it.

    Raises:
        ConfigError: there is none.
    """
    preset = PRESETS.get(name.lower().removeprefix("hermes-"))
    if preset is None:
        raise ConfigError(
            f"there is no preset {name!r} of bare weights.",
            hint=f"Presets are: {', '.join(PRESETS)}.",
        )
    return preset


def _is_tied(tensors: Mapping[str, StoredTensor]) -> bool:
    head, embedding = tensors.get("lm_head.weight"), tensors.get("embed_tokens.weight")
    if head is None or embedding is None:
        return True
    return head.shape == embedding.shape and torch.equal(head.read(), embedding.read())

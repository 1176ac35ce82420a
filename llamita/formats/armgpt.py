"""ArmGPT's checkpoints: `{"model", "optimizer"?, "step"?, "config"}`.

Queries, keys and values lie joined in `c_attn`; the rotary tables are saved in every layer. Its
code fixes what `check_armgpt` lists, so no config says it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llamita.config import ModelConfig
from llamita.errors import CheckpointError
from llamita.formats.checkpoint import EMBEDDING, HEAD, Checkpoint, match_tensors
from llamita.formats.foreign_config import read_fields, refuse_for, whole_number
from llamita.formats.key_map import JoinedQKV, Rule, map_to_foreign, map_to_native
from llamita.formats.stored import StoredTensor
from llamita.formats.torch_checkpoint import (
    TorchCheckpoint,
    count_layers,
    open_torch_checkpoint,
    shape_of,
)
from llamita.formats.torch_write import cast_all, write_torch_file
from llamita.model.rope import RotaryEmbedding

_NATIVE, _BLOCK = "model.layers.{layer}", "transformer.blocks.{layer}"

RULES = (
    Rule(EMBEDDING, "transformer.wte.weight"),
    Rule(f"{_NATIVE}.input_layernorm.weight", f"{_BLOCK}.ln_1.weight"),
    Rule(
        (
            f"{_NATIVE}.self_attn.q_proj.weight",
            f"{_NATIVE}.self_attn.k_proj.weight",
            f"{_NATIVE}.self_attn.v_proj.weight",
        ),
        f"{_BLOCK}.attn.c_attn.weight",
        JoinedQKV(),
    ),
    Rule(f"{_NATIVE}.self_attn.o_proj.weight", f"{_BLOCK}.attn.c_proj.weight"),
    Rule(f"{_NATIVE}.self_attn.q_norm.weight", f"{_BLOCK}.attn.q_norm.weight"),
    Rule(f"{_NATIVE}.self_attn.k_norm.weight", f"{_BLOCK}.attn.k_norm.weight"),
    Rule(f"{_NATIVE}.post_attention_layernorm.weight", f"{_BLOCK}.ln_2.weight"),
    Rule(f"{_NATIVE}.mlp.gate_proj.weight", f"{_BLOCK}.mlp.w1.weight"),
    Rule(f"{_NATIVE}.mlp.up_proj.weight", f"{_BLOCK}.mlp.w3.weight"),
    Rule(f"{_NATIVE}.mlp.down_proj.weight", f"{_BLOCK}.mlp.w2.weight"),
    Rule("model.norm.weight", "transformer.ln_f.weight"),
    Rule(HEAD, "lm_head.weight"),
)
_ROPE_BUFFERS = (f"{_BLOCK}.attn.rope_cos", f"{_BLOCK}.attn.rope_sin")

FIELDS = {
    "vocab_size": "vocab_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embd": "hidden_size",
    "block_size": "max_position_embeddings",
    "dropout": "residual_dropout",
}
"""ArmGPT's config keys, in its order, and the fields that they are."""

_QK_NORM = {"use_qk_norm": "use_qk_norm", "qk_norm": "use_qk_norm"}
_HARMLESS = ("dtype", "compile", "device", "seed", "tokenizer", "tokenizer_type")
_EPS, _THETA, _FFN_MULTIPLE = 1e-6, 10000.0, 64


def read_armgpt(
    source: Path | TorchCheckpoint, overrides: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Read an ArmGPT checkpoint.

    What its config lacks comes from the shapes, but for the number of heads.

    Args:
        overrides: `ModelConfig` fields or keys of ArmGPT's config that win over the file's.

    Raises:
        CheckpointError, ConfigError: the file is damaged, says what cannot be honoured, holds
            rotary tables of another model, or does not say how many heads there are.
    """
    opened = source if isinstance(source, TorchCheckpoint) else open_torch_checkpoint(source)
    config = _read_config(opened, overrides)
    tensors = dict(opened.tensors)
    is_length_given = bool({"max_position_embeddings", "block_size"} & set(overrides or {}))
    _drop_rope_buffers(tensors, config, opened.path, is_length_given)
    natives = map_to_native(RULES, tensors, config, opened.path)
    return Checkpoint(
        config,
        match_tensors(config, natives, opened.path, "its config"),
        opened.path,
        format="armgpt",
        tokenizer=opened.path.parent,
        chat_format="armgpt",
    )


def check_armgpt(config: ModelConfig) -> None:
    """Raise ConfigError where ArmGPT's model cannot be `config`."""
    heads, width = config.num_attention_heads, config.hidden_size
    for name, fixed in (
        ("rms_norm_eps", _EPS),
        ("rope_theta", _THETA),
        ("rope_scaling", None),
        ("num_key_value_heads", heads),
        ("tie_word_embeddings", True),
        ("attention_bias", False),
        ("attention_output_bias", False),
        ("mlp_bias", False),
        ("sliding_window", None),
    ):
        if getattr(config, name) != fixed:
            refuse_for(
                "ArmGPT", name, getattr(config, name), f"it is always {json.dumps(fixed)} there"
            )
    if config.head_dim * heads != width:
        reason = f"it is always hidden_size / num_attention_heads ({width} / {heads})"
        refuse_for("ArmGPT", "head_dim", config.head_dim, reason)
    inner = feed_forward_width(width)
    if config.intermediate_size != inner:
        reason = f"it is always {inner} at a hidden_size of {width}"
        refuse_for("ArmGPT", "intermediate_size", config.intermediate_size, reason)


def write_armgpt(
    checkpoint: Checkpoint, destination: Path, dtype: torch.dtype | None = None
) -> None:
    """Write `{"model", "config"}` to `destination`, one tensor in memory at a time.

    Args:
        dtype: of the weights on disk; left out, each tensor's own. Rotary tables stay float32.

    Raises:
        ConfigError: ArmGPT's model cannot be this one; nothing was written.
    """
    config = checkpoint.config
    check_armgpt(config)
    tensors = cast_all(checkpoint.tensors, dtype)
    tensors[HEAD] = tensors[EMBEDDING]
    state = map_to_foreign(RULES, tensors, config)
    tables = _rope_tables(config, config.max_position_embeddings)
    for name, table in zip(_ROPE_BUFFERS, tables, strict=True):
        stored = StoredTensor.of(table)
        state.update((name.format(layer=i), stored) for i in range(config.num_hidden_layers))
    settings = {key: getattr(config, field) for key, field in FIELDS.items()}
    if config.use_qk_norm:
        settings["use_qk_norm"] = True
    write_torch_file({"model": state, "config": settings}, destination)


def feed_forward_width(width: int) -> int:
    """ArmGPT's inner width: int(8 × width / 3), up to a multiple of 64."""
    return -(-int(8 * width / 3) // _FFN_MULTIPLE) * _FFN_MULTIPLE


def _read_config(opened: TorchCheckpoint, overrides: Mapping[str, Any] | None) -> ModelConfig:
    tensors, path = opened.tensors, opened.path
    names = {**FIELDS, **_QK_NORM}
    fields, _ = read_fields(opened.config or {}, overrides, path, names, harmless=_HARMLESS)
    embedding = "transformer.wte.weight"
    embedding = embedding if embedding in tensors else "lm_head.weight"
    vocab_size, width = shape_of(tensors, embedding, path)
    block = "transformer.blocks.0"
    fields.setdefault("vocab_size", vocab_size)
    fields.setdefault("hidden_size", width)
    fields.setdefault("intermediate_size", shape_of(tensors, f"{block}.mlp.w1.weight", path)[0])
    layers = count_layers(tensors, "transformer.blocks.", ".attn.c_attn.weight")
    fields.setdefault("num_hidden_layers", layers)
    has_norms = any(name.endswith((".q_norm.weight", ".k_norm.weight")) for name in tensors)
    fields.setdefault("use_qk_norm", has_norms)
    table = tensors.get(f"{block}.attn.rope_cos")
    if table is not None and len(table.shape) == 2:
        fields.setdefault("max_position_embeddings", table.shape[0])
    if "num_attention_heads" not in fields:
        raise CheckpointError(
            f"the config in {path} does not say how many heads the model has (n_head).",
            hint=_heads_hint(table, width),
        )
    whole_number(fields, "num_attention_heads")
    if "max_position_embeddings" not in fields:
        raise CheckpointError(
            f"{path} says its context nowhere: its config has no block_size, and there are no "
            "rotary tables.",
            hint="Say it with --override max_position_embeddings=N.",
        )
    fields.setdefault("attention_dropout", fields.get("residual_dropout", 0.0))
    return ModelConfig(
        **{"rope_theta": _THETA, "rms_norm_eps": _EPS, "tie_word_embeddings": True, **fields}
    )


def _heads_hint(table: StoredTensor | None, width: int) -> str:
    """How to say the number of heads; rotary tables have a column for every pair of a head."""
    if table is None or len(table.shape) != 2 or not table.shape[1] or width % table.shape[1]:
        return "Say it with --override num_attention_heads=N."
    heads = width // (2 * table.shape[1])
    return f"Its rotary tables are those of --override num_attention_heads={heads}."


def _drop_rope_buffers(
    tensors: dict[str, StoredTensor], config: ModelConfig, path: Path, is_length_given: bool
) -> None:
    """Take the rotary tables out, once they are known to be those that the config gives."""
    length, pairs = config.max_position_embeddings, config.head_dim // 2
    wanted: tuple[Tensor, Tensor] | None = None
    for name in [name for name in tensors if name.endswith((".rope_cos", ".rope_sin"))]:
        found = tensors.pop(name)
        if len(found.shape) != 2 or found.shape[1] != pairs:
            _refuse_table(name, found, path, f"head_dim {config.head_dim}", "num_attention_heads")
        if found.shape[0] != length and not is_length_given:
            _refuse_table(name, found, path, f"context {length}", "max_position_embeddings")
        rows = min(found.shape[0], length)
        if wanted is None or len(wanted[0]) < rows:
            wanted = _rope_tables(config, rows)
        table = wanted[0 if name.endswith("_cos") else 1]
        # Half-precision checkpoints hold rounded tables.
        allowed = 1e-4 if found.dtype in (torch.float32, torch.float64) else 1e-2
        if not torch.allclose(found.read()[:rows].double(), table[:rows].double(), 0, allowed):
            _refuse_table(name, found, path, f"rope_theta {config.rope_theta:g}", "rope_theta")


def _refuse_table(name: str, table: StoredTensor, path: Path, given: str, field: str) -> None:
    raise CheckpointError(
        f"{path} holds a rotary table in {name}, {list(table.shape)}, that its config does not "
        f"give ({given}).",
        hint=f"Set the right one with --override {field}=N.",
    )


def _rope_tables(config: ModelConfig, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, D/2] of every position, float32, as ArmGPT saves them."""
    positions = torch.arange(length, dtype=torch.float32)
    angles = torch.outer(positions, RotaryEmbedding(config).inverse_frequencies)
    return angles.cos(), angles.sin()

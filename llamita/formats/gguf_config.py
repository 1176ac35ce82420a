"""The metadata of a GGUF file, read into a `ModelConfig`.

Every `<architecture>.*` key is honoured, harmless, neutral, or refused by name with its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from llamita.config import ModelConfig
from llamita.errors import CheckpointError
from llamita.formats.foreign_config import read_fields
from llamita.formats.gguf_header import GGUFHeader
from llamita.formats.gguf_rope import (
    SCALING_KEYS,
    scaling_of_factors,
    scaling_of_keys,
)
from llamita.formats.gguf_tensors import (
    ARCHITECTURES,
    EMBEDDING,
    FREQUENCY_FACTORS,
    OUTPUT,
    Architecture,
)
from llamita.quantization.blocks import dequantize

FIELDS = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
"""`ModelConfig` fields and the keys that hold them as they are."""

_OPTIONAL = ("num_key_value_heads", "rope_theta")
"""Left out they are what llama.cpp takes them for: as many as query heads, and 10000."""

HEAD_SIZES = ("attention.key_length", "attention.value_length", "rope.dimension_count")
_OWN = ("vocab_size", "attention.sliding_window", *HEAD_SIZES, *SCALING_KEYS)
_HARMLESS = ("rope.scaling.finetuned", "expert_used_count", "pooling_type")
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "expert_count": (0,),
    "expert_shared_count": (0,),
    "leading_dense_block_count": (0,),
    "nextn_predict_layers": (0,),
    "attention.causal": (True,),
    "attention.scale": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "use_parallel_residual": (False,),
    "tensor_data_layout": ("Meta AI original pth", "reference"),
}
"""Values that leave the plain Llama function as it is; others are refused."""

_TOKEN_IDS = "tokenizer.ggml.{}_token_id"
_LONGEST_SHOWN = 32


def architecture_of(header: GGUFHeader) -> Architecture:
    """Which of the architectures that are read the file has.

    Raises:
        CheckpointError: another one, or the file is no model, or one of several parts.
    """
    metadata, path = header.metadata, header.path
    name = metadata.get("general.architecture")
    kind = metadata.get("general.type", "model")
    if kind != "model":
        raise CheckpointError(f"{path} is a GGUF file of the type {kind!r}, not a model.")
    parts = metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise CheckpointError(
            f"{path} is one of {parts} parts of a model.",
            hint="Join them first: llama-gguf-split --merge FIRST-PART WHOLE.gguf",
        )
    if not isinstance(name, str) or name not in ARCHITECTURES:
        shown = "names no architecture" if name is None else f"has the architecture {name!r}"
        raise CheckpointError(
            f"{path} {shown}; read are {', '.join(ARCHITECTURES)}.",
            hint="Other architectures compute something else than a Llama does.",
        )
    return ARCHITECTURES[name]


def read_gguf_config(
    header: GGUFHeader, architecture: Architecture, overrides: Mapping[str, Any] | None = None
) -> ModelConfig:
    """The model that metadata and tensors together describe.

    Biases, QK-norm, ties and the size of the vocabulary are read off the tensors.

    Args:
        overrides: `ModelConfig` fields, or keys of the file, that win over it.

    Raises:
        CheckpointError, ConfigError: a key is missing, unknown, or cannot be honoured.
    """
    overrides = dict(overrides or {})
    prefix = f"{architecture.name}."
    _refuse_other_functions(header, prefix, overrides)
    raw = {
        key: value.tolist()[:_LONGEST_SHOWN] if isinstance(value, np.ndarray) else value
        for key, value in header.metadata.items()
        if key.startswith(prefix) and key.removeprefix(prefix) not in _NEUTRAL
    }
    fields, own = read_fields(
        raw,
        overrides,
        header.path,
        names={prefix + key: field for field, key in FIELDS.items()},
        own=[prefix + key for key in _OWN],
        harmless=[prefix + key for key in _HARMLESS],
    )
    keys = {key.removeprefix(prefix): value for key, value in own.items()}
    missing = [
        prefix + key
        for field, key in FIELDS.items()
        if field not in fields and field not in _OPTIONAL
    ]
    if missing:
        raise CheckpointError(
            f"{header.path} lacks {', '.join(missing)}.",
            hint="Say what is missing with --override KEY=VALUE.",
        )
    described = {
        **_fields_of_tensors(header),
        **_token_ids(header),
        **_head_dim(keys, fields, header),
        **fields,
    }
    if "sliding_window" not in overrides:
        _check_window(keys, fields, header)
    _check_vocab_size(keys, described["vocab_size"], header)
    if "rope_scaling" not in overrides:
        described["rope_scaling"] = _rope_scaling(keys, described, header, architecture)
    return ModelConfig(**described)


def _refuse_other_functions(header: GGUFHeader, prefix: str, overrides: dict[str, Any]) -> None:
    """Refuse keys whose value is not the neutral one; overrides of them are used up."""
    for name, neutral in _NEUTRAL.items():
        key = prefix + name
        value = overrides.pop(key) if key in overrides else header.metadata.get(key)
        if value is not None and (isinstance(value, np.ndarray) or value not in neutral):
            raise CheckpointError(
                f"{header.path} has {key} = {value!r}; only {neutral[0]!r} is computed here.",
                hint=f"If it does not matter, drop it with --override {key}=null.",
            )


def _fields_of_tensors(header: GGUFHeader) -> dict[str, Any]:
    tensors = header.tensors
    if EMBEDDING not in tensors:
        raise CheckpointError(f"{header.path} holds no {EMBEDDING}.")
    return {
        "vocab_size": tensors[EMBEDDING].shape[0],
        "tie_word_embeddings": OUTPUT not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "attention_output_bias": "blk.0.attn_output.bias" in tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "use_qk_norm": "blk.0.attn_q_norm.weight" in tensors,
    }


def _token_ids(header: GGUFHeader) -> dict[str, Any]:
    """The ids that the tokenizer's keys give; several tokens can end what the model says."""
    known = {
        role: header.metadata.get(_TOKEN_IDS.format(role))
        for role in ("bos", "eos", "eot", "eom", "padding")
    }
    ends = [known[role] for role in ("eos", "eot", "eom") if known[role] is not None]
    ends = list(dict.fromkeys(ends))
    return {
        "bos_token_id": known["bos"],
        "eos_token_id": None if not ends else ends[0] if len(ends) == 1 else tuple(ends),
        "pad_token_id": known["padding"],
    }


def _head_dim(
    keys: Mapping[str, Any], fields: Mapping[str, Any], header: GGUFHeader
) -> dict[str, Any]:
    """The one size of a head: keys, values and the rotated part must agree on it."""
    hidden, heads = fields["hidden_size"], fields["num_attention_heads"]
    if "head_dim" in fields:
        return {}
    if type(hidden) is not int or type(heads) is not int or heads < 1:
        return {}  # the config refuses it by its name
    size = keys.get("attention.key_length", hidden // heads)
    for key in HEAD_SIZES:
        value = keys.get(key, size)
        if value != size:
            raise CheckpointError(
                f"{header.path} has {key} {value} where heads have {size}: "
                "keys, values and the rotated part must be of one size here.",
                hint=f"If that is wrong, pass --override head_dim={size}.",
            )
    # Before anything is laid out by a size that only a key claims.
    queries = header.tensors.get("blk.0.attn_q.weight")
    if queries is not None and (type(size) is not int or queries.shape[0] != heads * size):
        raise CheckpointError(
            f"{header.path} has {heads} heads of {size}, but its blk.0.attn_q.weight has "
            f"{queries.shape[0]} rows."
        )
    return {"head_dim": size} if "attention.key_length" in keys else {}


def _check_window(keys: Mapping[str, Any], fields: Mapping[str, Any], header: GGUFHeader) -> None:
    window = keys.get("attention.sliding_window", 0)
    context = fields["max_position_embeddings"]
    beyond = isinstance(window, int) and isinstance(context, int) and window >= context
    if window != 0 and not beyond:
        raise CheckpointError(
            f"{header.path} has attention.sliding_window {window}, which llama.cpp's architecture "
            "does not compute, so it is not clear what the model is.",
            hint="Say whether it has one: --override sliding_window=null, or the number.",
        )


def _check_vocab_size(keys: Mapping[str, Any], vocab_size: int, header: GGUFHeader) -> None:
    claimed, rows = keys.get("vocab_size", vocab_size), header.tensors[EMBEDDING].shape[0]
    tokens = header.metadata.get("tokenizer.ggml.tokens", [])
    if claimed != rows:
        raise CheckpointError(
            f"{header.path} has vocab_size {claimed}, but {EMBEDDING} has {rows} rows."
        )
    if isinstance(tokens, list) and len(tokens) > rows:
        raise CheckpointError(
            f"{header.path} lists {len(tokens)} tokens, but {EMBEDDING} has {rows} rows."
        )


def _rope_scaling(
    keys: Mapping[str, Any],
    fields: Mapping[str, Any],
    header: GGUFHeader,
    architecture: Architecture,
) -> dict[str, Any] | None:
    scaling = scaling_of_keys(keys, str(header.path))
    info = header.tensors.get(FREQUENCY_FACTORS)
    if info is None:
        return scaling
    if not architecture.has_frequency_factors or scaling is not None:
        raise CheckpointError(
            f"{header.path} holds {FREQUENCY_FACTORS}, which does not go with its "
            + (f"{scaling['rope_type']} scaling." if scaling else f"{architecture.name}."),
        )
    factors = dequantize(header.bytes_of(info), info.kind.name, info.shape)
    plain = ModelConfig(**{**fields, "rope_scaling": None})
    return scaling_of_factors(factors, plain, str(header.path))

"""`config.json` of the HuggingFace directory, read into a `ModelConfig`.

Every key is honoured, harmless, or refused by name with its value: a key that is passed over
would give a model that loads, talks, and is quietly wrong.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from llamita.config import FIELD_NAMES, ModelConfig
from llamita.errors import CheckpointError, ConfigError
from llamita.formats.families import (
    COMMON_DEFAULTS,
    COPIED_KEYS,
    FAMILIES,
    HARMLESS_KEYS,
    NEUTRAL_VALUES,
    NULL_HAS_MEANING,
    NULL_IS_DERIVED,
    REQUIRED_KEYS,
    ROPE_KEYS,
    TOKEN_ID_KEYS,
    Family,
)
from llamita.formats.rope_json import refuse, rope_fields

_SLIDING = "sliding_attention"
_QWEN_MAX_WINDOW_LAYERS = 28


def parse_overrides(items: Iterable[str]) -> dict[str, Any]:
    """`["rope_theta=500000", "hidden_act=silu"]` as a dictionary; values are JSON or plain text.

    Raises:
        ConfigError: an item has no `=`.
    """
    overrides: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"the override {item!r} is not of the form key=value.",
                hint="For example: --override rope_theta=500000",
            )
        try:
            overrides[key.strip()] = json.loads(text)
        except ValueError:
            overrides[key.strip()] = text
    return overrides


def parse_config(
    raw: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
) -> ModelConfig:
    """The `ModelConfig` that a parsed `config.json` describes.

    Args:
        raw: the file's top-level object.
        overrides: `ModelConfig` fields or keys of the file that win over it; null drops a key.
        generation: `generation_config.json`; its token ids stand in for those the file lacks.

    Raises:
        ConfigError, CheckpointError: a key is missing, unknown, or says what cannot be honoured.
    """
    overrides, generation = dict(overrides or {}), generation or {}
    keys = _apply_overrides(raw, overrides)
    family = _family_of(keys)
    keys = {k: v for k, v in keys.items() if v is not None or k in NULL_HAS_MEANING}
    _refuse_what_is_not_honoured(keys, family)
    missing = [key for key in REQUIRED_KEYS if key not in keys]
    if missing:
        raise CheckpointError(
            f"config.json lacks {', '.join(missing)}.",
            hint="Say what is missing with --override KEY=VALUE.",
        )
    fields = {**COMMON_DEFAULTS, **family.defaults}
    fields.update({key: 0 for key in NULL_IS_DERIVED if raw.get(key, 0) is None})
    fields.update({key: keys[key] for key in COPIED_KEYS if key in keys})
    fields.update({key: keys[key] for key in family.keys & FIELD_NAMES if key in keys})
    if fields.get("pad_token_id") == -1:
        fields["pad_token_id"] = None
    for key in TOKEN_ID_KEYS:
        if keys.get(key) is None and generation.get(key) is not None:
            fields[key] = generation[key]
    context = fields["max_position_embeddings"]
    fields.update(rope_fields({**keys, "max_position_embeddings": context}))
    if "sliding_window" not in overrides:
        fields["sliding_window"] = _window_of_all_layers(keys, fields, family)
    fields.update(family.always)
    fields.update(_field_overrides(overrides))
    return ModelConfig(**fields)


def _apply_overrides(raw: Mapping[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """The file's keys, with those that overrides replace set or gone; fields are set later."""
    keys = dict(raw)
    known = FIELD_NAMES | set(keys) | set(ROPE_KEYS) | HARMLESS_KEYS | set(NEUTRAL_VALUES)
    for key, value in overrides.items():
        if key not in known:
            near = difflib.get_close_matches(key, sorted(FIELD_NAMES | set(keys)), n=1)
            raise ConfigError(
                f"there is no setting {key!r} to override.",
                hint=f"Did you mean {near[0]!r}?" if near else None,
            )
        if value is None:
            keys.pop(key, None)
        elif key in COPIED_KEYS or key not in FIELD_NAMES:
            keys[key] = value
        else:
            keys.pop(key, None)
    if "rope_scaling" in overrides and isinstance(keys.get("rope_parameters"), dict):
        keys["rope_parameters"] = {
            key: value
            for key, value in keys["rope_parameters"].items()
            if key in ("rope_theta", "partial_rotary_factor")
        }
    if "rope_theta" in overrides:
        for name in ("rope_parameters", "rope_scaling"):
            if isinstance(keys.get(name), dict):
                keys[name] = {k: v for k, v in keys[name].items() if k != "rope_theta"}
    return keys


def _field_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    fields = {
        key: 0 if value is None and key in NULL_IS_DERIVED else value
        for key, value in overrides.items()
        if key in FIELD_NAMES
        and (value is not None or key in NULL_HAS_MEANING or key in NULL_IS_DERIVED)
    }
    if "attention_bias" in fields and "attention_output_bias" not in fields:
        fields["attention_output_bias"] = None
    return fields


def _family_of(keys: Mapping[str, Any]) -> Family:
    architectures = keys.get("architectures") or []
    if not isinstance(architectures, list):
        refuse("architectures", architectures, "it must be a list of names")
    by_name = {family.architecture.lower(): name for name, family in FAMILIES.items()}
    named = [by_name.get(str(name).lower()) for name in architectures]
    model_type = keys.get("model_type") or (named[0] if named else None)
    known = ", ".join(FAMILIES)
    if model_type is None and not architectures:
        raise CheckpointError(
            "config.json lacks model_type.",
            hint=f"Say it with --override model_type=NAME; known are {known}.",
        )
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise CheckpointError(
            f"config.json has model_type {model_type or architectures!r}; read are {known}.",
            hint="If the model is a plain Llama under another name, pass both "
            "--override model_type=llama and --override architectures=null.",
        )
    if named and named[0] != model_type:
        raise CheckpointError(
            f"config.json has architectures {architectures!r} beside model_type {model_type!r}; "
            f"it must be [{FAMILIES[model_type].architecture!r}].",
            hint="If the weights are that all the same, pass --override architectures=null.",
        )
    return FAMILIES[model_type]


def _refuse_what_is_not_honoured(keys: Mapping[str, Any], family: Family) -> None:
    honoured = {*COPIED_KEYS, *ROPE_KEYS, *family.keys, *HARMLESS_KEYS}
    if "sliding_window" not in family.keys:
        honoured.add("max_window_layers")
    for key, value in keys.items():
        if key in family.only:
            if value not in family.only[key]:
                refuse(key, value, f"{family.architecture} means {family.only[key][0]!r}")
        elif key in NEUTRAL_VALUES:
            if value not in NEUTRAL_VALUES[key]:
                refuse(key, value, f"only {json.dumps(NEUTRAL_VALUES[key][0])} is computed here")
        elif key not in honoured and not (value is False or value in ("", [], {}, None)):
            refuse(key, value, "this key is not known here, so it may change the function")
    no_rope_layers = keys.get("no_rope_layers") or []
    if not isinstance(no_rope_layers, list) or any(flag != 1 for flag in no_rope_layers):
        refuse("no_rope_layers", no_rope_layers, "every layer has rotary positions here")


def _window_of_all_layers(
    keys: Mapping[str, Any], fields: Mapping[str, Any], family: Family
) -> int | None:
    """The sliding window that every layer has, or None; layers that differ are refused."""
    window: int | None = fields.get("sliding_window")
    layers = fields["num_hidden_layers"]
    kinds = keys.get("layer_types")
    if "use_sliding_window" in family.keys:
        window = window if keys.get("use_sliding_window", False) else None
        if window is not None and kinds is None:
            first = keys.get("max_window_layers", _QWEN_MAX_WINDOW_LAYERS)
            if not isinstance(first, int) or not isinstance(layers, int) or 0 < first < layers:
                refuse("max_window_layers", first, "all layers or none may have the window here")
            return window if first <= 0 else None
    if kinds is None:
        return window
    if not isinstance(kinds, list) or len(kinds) != layers:
        refuse("layer_types", kinds, f"it must name the kind of each of {layers} layers")
    if any(kind != kinds[0] for kind in kinds) or kinds[0] not in ("full_attention", _SLIDING):
        refuse("layer_types", kinds, "all layers must be full_attention, or all sliding_attention")
    if kinds[0] == _SLIDING and window is None:
        refuse("layer_types", kinds, "the file gives these layers no sliding_window")
    if kinds[0] != _SLIDING and window is not None and "use_sliding_window" not in family.keys:
        refuse("layer_types", kinds, f"sliding_window says {window}")
    return window if kinds[0] == _SLIDING else None

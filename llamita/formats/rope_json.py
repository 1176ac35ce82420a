"""Rotary settings of a `config.json`, in the older spelling and in `rope_parameters`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from llamita.errors import CheckpointError

_NEEDS_ORIGINAL_LENGTH = ("llama3", "yarn")


def refuse(key: str, value: Any, reason: str) -> NoReturn:
    """Raise the one error for a key of `config.json` that cannot be honoured."""
    shown = json.dumps(value, default=repr)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    raise CheckpointError(
        f"config.json has {key} = {shown}: {reason}.",
        hint=f"If that is wrong or does not matter, drop it with --override {key}=null.",
    )


def rope_fields(keys: Mapping[str, Any]) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling` of `ModelConfig`, from whichever spelling the file uses.

    Both spellings at once must say the same.

    Raises:
        CheckpointError: they contradict each other, or differ from layer to layer.
    """
    tables = {
        name: _scaling(name, keys) for name in ("rope_scaling", "rope_parameters") if keys.get(name)
    }
    scalings = list(tables.values())
    if len(scalings) == 2 and scalings[0] != scalings[1]:
        refuse("rope_parameters", keys["rope_parameters"], "rope_scaling says something else")
    fields: dict[str, Any] = {"rope_scaling": scalings[0] if scalings else None}
    thetas = {
        name: value
        for name, value in (
            ("rope_theta", keys.get("rope_theta")),
            *((name, keys[name].get("rope_theta")) for name in tables),
        )
        if value is not None
    }
    if len(set(map(repr, map(_as_number, thetas.values())))) > 1:
        refuse("rope_theta", list(thetas.values()), f"{' and '.join(thetas)} contradict each other")
    if thetas:
        fields["rope_theta"] = next(iter(thetas.values()))
    return fields


def _as_number(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _scaling(name: str, keys: Mapping[str, Any]) -> dict[str, Any] | None:
    table = keys[name]
    if not isinstance(table, dict):
        refuse(name, table, "it must be an object")
    if any(isinstance(value, dict) for value in table.values()):
        refuse(name, table, "rotary settings that differ by layer type are not computed here")
    scaling = {
        key: value
        for key, value in table.items()
        if value is not None and key not in ("rope_theta", "type", "finetuned")
    }
    kinds = [table[key] for key in ("rope_type", "type") if table.get(key) is not None]
    if len(kinds) == 2 and kinds[0] != kinds[1]:
        refuse(name, table, "rope_type and type contradict each other")
    if scaling.pop("partial_rotary_factor", 1.0) != 1.0:
        refuse(name, table, "rotary positions on a part of the head are not computed here")
    if not kinds and scaling:
        refuse(name, table, "it lacks rope_type")
    kind = kinds[0] if kinds else "default"
    scaling["rope_type"] = kind
    _set_original_length(name, scaling, keys)
    return None if scaling == {"rope_type": "default"} else scaling


def _set_original_length(name: str, scaling: dict[str, Any], keys: Mapping[str, Any]) -> None:
    """Some files say the pretraining length outside the table, or not at all."""
    key = "original_max_position_embeddings"
    context, outside = keys.get("max_position_embeddings"), keys.get(key)
    if scaling["rope_type"] in _NEEDS_ORIGINAL_LENGTH:
        if outside is not None and scaling.setdefault(key, outside) != outside:
            refuse(key, outside, f"{name} says {scaling[key]}")
        if context is not None:
            scaling.setdefault(key, context)
    elif scaling["rope_type"] == "dynamic":
        for value in (outside, scaling.pop(key, None)):
            if value is not None and value != context:
                refuse(key, value, "dynamic scaling starts at max_position_embeddings here")
    elif scaling["rope_type"] == "linear":
        scaling.pop(key, None)

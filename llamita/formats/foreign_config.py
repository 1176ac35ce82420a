"""What the configs of foreign layouts share: overrides, and no key that is passed over."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from llamita.config import FIELD_NAMES
from llamita.errors import CheckpointError, ConfigError
from llamita.formats.families import NULL_HAS_MEANING


def read_fields(
    raw: Mapping[str, Any],
    overrides: Mapping[str, Any] | None,
    source: Path,
    names: Mapping[str, str],
    own: Collection[str] = (),
    harmless: Collection[str] = (),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A foreign config as `ModelConfig` fields, and the keys that only the layout understands.

    A field without a value is left out, so that shapes or defaults may give it.

    Args:
        overrides: `ModelConfig` fields or keys of the file that win; null drops a key.
        source: what is being read, for errors.
        names: from the layout's keys to the fields they are.
        own: keys whose meaning the layout's reader knows.
        harmless: keys that do not change the function.

    Raises:
        CheckpointError: a key may change the function and is not known. ConfigError: an override
            names nothing that can be set.
    """
    overrides = dict(overrides or {})
    known = {*names, *own, *harmless}
    keys = {str(key): value for key, value in raw.items()}
    for key, value in keys.items():
        if not isinstance(value, (str, int, float, list, tuple, dict, NoneType)):
            raise CheckpointError(f"{key} in the config of {source} is a {type(value).__name__}.")
    fields: dict[str, Any] = {}
    for key, value in overrides.items():
        if key not in FIELD_NAMES and key not in known and key not in keys:
            near = difflib.get_close_matches(key, sorted(FIELD_NAMES | known), n=1)
            raise ConfigError(
                f"there is no setting {key!r} to override.",
                hint=f"Did you mean {near[0]!r}?" if near else None,
            )
        if key in known or key in keys:
            keys[key] = value
    for key, value in keys.items():
        is_empty = isinstance(value, (str, list, tuple, dict)) and not value
        is_neutral = value is False or value is None or is_empty
        if key not in known and not is_neutral:
            _refuse(key, value, source)
        field = names.get(key)
        if field is not None and (value is not None or field in NULL_HAS_MEANING):
            fields[field] = value
    for key, value in overrides.items():
        if key not in FIELD_NAMES or key in names:
            continue
        fields.pop(key, None)
        if value is not None or key in NULL_HAS_MEANING:
            fields[key] = value
    return fields, {key: keys[key] for key in own if keys.get(key) is not None}


def whole_number(fields: Mapping[str, Any], name: str) -> int:
    """A field that must be a whole number above 0 before shapes can be held against it.

    Raises:
        ConfigError: it is something else.
    """
    value = fields[name]
    if type(value) is not int or not 0 < value < 2**31:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number above 0.")
    return value


def refuse_for(target: str, field: str, value: object, reason: str) -> None:
    """Raise the error for a model that a layout cannot express; nothing was written.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        f"{field} is {json.dumps(value)}, which the {target} layout cannot express: {reason}.",
        hint="Convert to hf, which can hold it; nothing was written.",
    )


def _refuse(key: str, value: Any, source: Path) -> None:
    shown = json.dumps(value, default=repr)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    raise CheckpointError(
        f"the config in {source} has {key} = {shown}: this key is not known here, so it may "
        "change the function.",
        hint=f"If it does not matter, drop it with --override {key}=null.",
    )

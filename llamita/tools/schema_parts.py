"""JSON schemas as pydantic writes them, made into those of tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# JSON Schema has them, but no text can be held to them; a Python set takes care of itself.
_NOT_NEEDED = ("title", "uniqueItems")
# Those that calls can be held to. The rest (path, binary, …) is left to the function.
_FORMATS = (
    *("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"),
)
_PLACE = "#/$defs/"


def cleaned(schema: Any, of_names: bool = False) -> Any:
    """The schema without what pydantic adds for other uses. of_names: keys are names, not words."""
    if isinstance(schema, list):
        return [cleaned(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: cleaned(value, key in ("properties", "$defs")) if key != "default" else value
        for key, value in schema.items()
        if of_names or _is_needed(key, value)
    }
    if not of_names and kept.get("type") == "object" and "properties" in kept:
        kept.setdefault("additionalProperties", False)  # a dataclass has no others
    return kept


def without_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """The same without `$ref` where it is one alone, to an Enum or dataclass nothing else names."""
    if set(schema) != {"$ref", "$defs"}:
        return schema
    name = schema["$ref"].removeprefix(_PLACE)
    if any(name in _references(part) for part in schema["$defs"].values()):
        return schema
    definitions = dict(schema["$defs"])
    return {**definitions.pop(name), "$defs": definitions}


def collect_definitions(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema with its `$defs` moved to `definitions`.

    Where one of the names stands there for something else, all of this schema get a number behind.
    """
    own = schema.get("$defs", {})
    rest = {key: value for key, value in schema.items() if key != "$defs"}
    names = {name: name for name in own}
    number = 1
    while any(
        names[name] in definitions and definitions[names[name]] != _renamed(body, names)
        for name, body in own.items()
    ):
        number += 1
        names = {name: f"{name}_{number}" for name in own}
    definitions |= {names[name]: _renamed(body, names) for name, body in own.items()}
    renamed: dict[str, Any] = _renamed(rest, names)
    return renamed


def ordered(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Type and description first: so people write schemas, and models know them so."""
    names = [name for name in ("type", "description") if name in schema]
    return {name: schema[name] for name in [*names, *schema]}


def _is_needed(key: str, value: Any) -> bool:
    return key not in _NOT_NEEDED and not (key == "format" and value not in _FORMATS)


def _references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_references, schema))
    if not isinstance(schema, dict):
        return set()
    found = set().union(*(_references(value) for value in schema.values()))
    reference = schema.get("$ref")
    return found | {reference.removeprefix(_PLACE)} if isinstance(reference, str) else found


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """The schema with its references to these names under others."""
    if isinstance(schema, list):
        return [_renamed(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {key: _renamed(value, names) for key, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(_PLACE):
        name = reference.removeprefix(_PLACE)
        renamed["$ref"] = _PLACE + names.get(name, name)
    return renamed

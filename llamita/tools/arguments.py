"""Arguments of a call against the JSON schema of a tool (Draft 2020-12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llamita.errors import ToolError

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_LONGEST = 300


def check_parameters(parameters: Any, name: str) -> None:
    """Raise ToolError, naming the tool, unless this is the JSON schema of an object."""
    from jsonschema import Draft202012Validator, SchemaError

    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        raise ToolError(
            f"the parameters of the tool {name} are {parameters!r}.",
            hint='Give the JSON schema of an object: {"type": "object", "properties": {…}}.',
        )
    try:
        Draft202012Validator.check_schema(parameters)
    except SchemaError as error:
        place = "".join(f".{part}" for part in error.absolute_path)
        raise ToolError(
            f"the parameters of the tool {name} are no JSON schema: at {place or '.'}: "
            f"{error.message}."
        ) from error


def arguments_error(arguments: Any, parameters: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments of a call, in one line; None where nothing is."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    if not isinstance(arguments, Mapping):
        return f"the arguments are {_short(repr(arguments))}, not an object"
    validator = _validator({"type": "object", **parameters})
    try:
        error = best_match(validator.iter_errors(dict(arguments)))
    except (Unresolvable, RecursionError) as cause:
        return f"the schema of the tool cannot be used: {cause}"
    if error is None:
        return None
    message = error.message
    if error.validator == "pattern":  # what it is for tells more than the expression
        message = f"{error.instance!r} is not written as wanted"
        if isinstance(error.schema, Mapping) and "description" in error.schema:
            message += f" ({error.schema['description']})"
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
    )
    return f"{place.lstrip('.')}: {_short(message)}" if place else _short(message)


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is what a schema describes."""
    return bool(_validator(schema).is_valid(value))


def _validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    # Without a registry of its own it would fetch what `$ref` names from the net.
    return Draft202012Validator(schema, registry=Registry())


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

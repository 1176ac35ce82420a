"""Python functions as tools: a JSON schema from type hints, and a call from checked arguments.

pydantic knows the types: numbers, texts, lists, dictionaries, `Literal`, `Enum`, `Optional`,
dataclasses, `TypedDict`, dates. `Annotated[int, "what it is", {"minimum": 1}]` adds a description
and keywords of JSON Schema.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from llamita.errors import ToolError
from llamita.tools.docstrings import read_docstring

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# JSON Schema has them, but no text can be held to them; a Python set takes care of itself.
_NOT_NEEDED = ("title", "uniqueItems")


class FunctionCall:
    """Calls a function with the values of its parameters, as they come from JSON."""

    def __init__(
        self, function: Callable[..., Any], signature: inspect.Signature, types: dict[str, Any]
    ) -> None:
        self.function = function
        self._signature = signature
        self._types: dict[str, TypeAdapter[Any]] = types
        functools.update_wrapper(self, function)

    def __call__(self, **arguments: Any) -> Any:
        """What the function gives. A value that is not of a parameter's type raises TypeError."""
        from pydantic import ValidationError

        values = {}
        for name, value in arguments.items():
            try:
                values[name] = self._types[name].validate_python(value)
            except KeyError:
                raise TypeError(f"there is no parameter {name}") from None
            except ValidationError as error:
                raise TypeError(f"{name}: {error.errors()[0]['msg']}") from None
        bound = inspect.BoundArguments(self._signature, values)
        bound.apply_defaults()
        return self.function(*bound.args, **bound.kwargs)


def read_function(function: Callable[..., Any]) -> tuple[str, str, dict[str, Any], FunctionCall]:
    """The name, description, JSON schema of the arguments, and the call of a function.

    Raises:
        ToolError: naming the parameter whose type is not given or has no JSON.
    """
    name = getattr(function, "__name__", None)
    if not callable(function) or name is None or inspect.isclass(function):
        raise ToolError(f"{function!r} is no function.", hint="Give a function, or a Tool.")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ToolError(
            f"the function {name} is asynchronous.", hint="Give one that returns its result."
        )
    signature, hints = _hints(function, name)
    description, said = read_docstring(function.__doc__)
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    required: list[str] = []
    types: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        where = f"the parameter {parameter.name} of {name}"
        if parameter.kind in _COLLECTING:
            raise ToolError(
                f"{where} collects any number of arguments.",
                hint="Write each parameter out, or take a list.",
            )
        if parameter.name not in hints:
            raise ToolError(
                f"{where} has no type.", hint=f"Give it one, such as {parameter.name}: str."
            )
        types[parameter.name], schema = _type(hints[parameter.name], where)
        definitions |= schema.pop("$defs", {})
        schema = (
            {"description": said[parameter.name], **schema} if parameter.name in said else schema
        )
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
        else:
            schema |= _default(parameter.default, types[parameter.name])
        properties[parameter.name] = _ordered(schema)
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    if definitions:
        schema["$defs"] = definitions
    return name, description, schema, FunctionCall(function, signature, types)


def _hints(function: Callable[..., Any], name: str) -> tuple[inspect.Signature, dict[str, Any]]:
    try:
        plain = function.func if isinstance(function, functools.partial) else function
        return inspect.signature(function), typing.get_type_hints(plain, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise ToolError(
            f"the types of {name} cannot be read: {error}.",
            hint="Import what its annotations name where the function is defined.",
        ) from error


def _type(hint: Any, where: str) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    from pydantic import PydanticUserError, TypeAdapter
    from pydantic_core import SchemaError

    plain, extra = _annotations(hint)
    try:
        adapter = TypeAdapter(plain)
        schema = adapter.json_schema()
    except (PydanticUserError, SchemaError, TypeError, NameError) as error:
        hint = (
            "Tools take texts, numbers, booleans, lists, dictionaries, Literal, Enum, Optional and "
            "dataclasses of these."
        )
        if getattr(error, "code", None) == "typed-dict-version":
            hint = "Before Python 3.12 take TypedDict from typing_extensions."
        raise ToolError(
            f"{where} has the type {_named(plain)}, for which there is no JSON.", hint=hint
        ) from error
    cleaned = _without(schema)
    if set(cleaned) == {"$ref", "$defs"}:  # an Enum or dataclass, which nothing else names
        name = cleaned["$ref"].removeprefix("#/$defs/")
        if f'"#/$defs/{name}"' not in str(cleaned["$defs"]).replace("'", '"'):
            definitions = dict(cleaned["$defs"])
            cleaned = {**definitions.pop(name), "$defs": definitions}
    return adapter, {**cleaned, **extra}


def _annotations(hint: Any) -> tuple[Any, dict[str, Any]]:
    """The type without our own annotations, and what they say; pydantic's stay."""
    if typing.get_origin(hint) is not Annotated:
        return hint, {}
    plain, *notes = typing.get_args(hint)
    extra: dict[str, Any] = {}
    for note in notes:
        if isinstance(note, str):
            extra["description"] = note
        elif isinstance(note, Mapping):
            extra |= note
        else:
            plain = Annotated[plain, note]
    return plain, extra


def _default(value: Any, adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """What the schema says of a default; nothing of one that JSON of the type cannot write."""
    try:
        return {"default": adapter.dump_python(value, mode="json", warnings="error")}
    except Exception:  # pydantic passes on what the type's own code raises
        return {}


def _without(schema: Any, of_names: bool = False) -> Any:
    """The schema without what pydantic adds for other uses. of_names: keys are names, not words."""
    if isinstance(schema, list):
        return [_without(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _without(value, key in ("properties", "$defs")) if key != "default" else value
        for key, value in schema.items()
        if of_names or key not in _NOT_NEEDED
    }
    if not of_names and kept.get("type") == "object" and "properties" in kept:
        kept.setdefault("additionalProperties", False)  # a dataclass has no others
    return kept


def _ordered(schema: dict[str, Any]) -> dict[str, Any]:
    """Type and description first: so people write schemas, and models know them so."""
    names = [name for name in ("type", "description") if name in schema]
    return {name: schema[name] for name in [*names, *schema]}


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)

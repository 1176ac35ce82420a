"""Python functions as tools: a JSON schema from type hints, and a call from checked arguments.

pydantic knows the types: numbers, texts, lists, dictionaries, `Literal`, `Enum`, `Optional`,
dataclasses, `TypedDict`, dates. `Annotated[int, "what it is", {"minimum": 1}]` adds a description
and keywords of JSON Schema.
"""

from __future__ import annotations

import functools
import inspect
import json
import operator
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from llamita.errors import ToolError
from llamita.tools.arguments import fits
from llamita.tools.docstrings import read_docstring
from llamita.tools.schema_parts import cleaned, collect_definitions, ordered, without_reference

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NONE = object()  # no default


class FunctionCall:
    """Calls a function with the values of its parameters, as they come from JSON."""

    def __init__(
        self, function: Callable[..., Any], signature: inspect.Signature, types: dict[str, Any]
    ) -> None:
        self.function = function
        self._signature = signature
        self._types: dict[str, TypeAdapter[Any]] = types
        functools.update_wrapper(self, function)

    def __call__(self, /, **arguments: Any) -> Any:
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
    plain = function.func if isinstance(function, functools.partial) else function
    name = getattr(function, "__name__", getattr(plain, "__name__", None))
    if not callable(function) or name is None or inspect.isclass(function):
        raise ToolError(f"{function!r} is no function.", hint="Give a function, or a Tool.")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ToolError(
            f"the function {name} is asynchronous.", hint="Give one that returns its result."
        )
    signature, hints = _hints(function, name)
    description, said = read_docstring(plain.__doc__)
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
        hint = hints[parameter.name]
        if parameter.default is None:
            hint = _or_none(hint)
        types[parameter.name], schema = _type(hint, where)
        schema = collect_definitions(schema, definitions)
        if parameter.name in said and (
            "description" not in schema or _says_its_class(schema, hint)
        ):
            schema = {**schema, "description": said[parameter.name]}
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
        else:
            default = _default(parameter.default, types[parameter.name])
            if default is not _NONE and fits(default, {**schema, "$defs": definitions}):
                schema["default"] = default
        properties[parameter.name] = ordered(schema)
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
    _check_keys(plain, where)
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
    return adapter, {**without_reference(cleaned(schema)), **extra}


def _check_keys(hint: Any, where: str) -> None:
    """Refuse dictionaries whose keys are no texts: JSON's are, and no schema says more of them."""
    parts = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping) and parts:
        key = parts[0]
        if isinstance(key, type) and not issubclass(key, str | Enum):
            raise ToolError(
                f"{where} has a dictionary whose keys are of the type {_named(key)}.",
                hint="In JSON keys are texts: take dict[str, …], or a list of pairs.",
            )
    for part in parts if origin is not Literal else ():
        _check_keys(part, where)


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


def _or_none(hint: Any) -> Any:
    """The type of `x: int = None`, which says with its default that it may be left out."""
    if typing.get_origin(hint) is Annotated:
        plain, *notes = typing.get_args(hint)
        return operator.getitem(Annotated, (plain | None, *notes))
    return hint | None


def _says_its_class(schema: Mapping[str, Any], hint: Any) -> bool:
    """Whether the description is that of the type's class, which knows nothing of the parameter."""
    plain = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    doc = plain.__doc__ if isinstance(plain, type) else None
    return doc is not None and schema["description"] == inspect.cleandoc(doc)


def _default(value: Any, adapter: TypeAdapter[Any]) -> Any:
    """A default as JSON has it; of one that JSON of the type cannot write, _NONE."""
    try:
        written = adapter.dump_python(value, mode="json", warnings="error")
        json.dumps(written, allow_nan=False)
        adapter.validate_python(written)
    except Exception:  # pydantic passes on what the type's own code raises
        return _NONE
    return written


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)

"""Python functions as tools: schemas from signatures and docstrings, and calls that fit them."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, Optional

import pytest
from jsonschema import Draft202012Validator
from transformers.utils import get_json_schema
from typing_extensions import TypedDict

from llamita.errors import ToolError
from llamita.tools import Tool, Toolbox


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Place(TypedDict):
    city: str


def parameters_of(function: Any) -> dict[str, Any]:
    return dict(Tool.of(function).parameters)


def google(city: str, days: int = 3, exact: bool = False) -> str:
    """
    Weather of a city.

    It looks outside.

    Args:
        city: The city,
            by its name.
        days (int, optional): How many days.
        exact: Whether: yes or no.

    Returns:
        A text.

    Raises:
        ValueError: no such city.
    """
    return f"{city} {days} {exact}"


def numpy_style(city: str, days: int = 3, exact: bool = False) -> str:
    """Weather of a city.

    It looks outside.

    Parameters
    ----------
    city : str
        The city,
        by its name.
    days : int, optional
        How many days.
    exact
        Whether: yes or no.

    Returns
    -------
    str
        A text.
    """
    return f"{city} {days} {exact}"


def rest(city: str, days: int = 3, exact: bool = False) -> str:
    """Weather of a city.

    It looks outside.

    :param city: The city,
        by its name.
    :type city: str
    :param int days: How many days.
    :param exact: Whether: yes or no.
    :returns: A text.
    """
    return f"{city} {days} {exact}"


EXPECTED = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "The city, by its name."},
        "days": {"type": "integer", "description": "How many days.", "default": 3},
        "exact": {"type": "boolean", "description": "Whether: yes or no.", "default": False},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("function", [google, numpy_style, rest])
def test_docstrings_of_three_styles_say_the_same(function: Any) -> None:
    tool = Tool.of(function)
    assert tool.description == "Weather of a city.\nIt looks outside."
    assert tool.parameters == EXPECTED


def simple(a: int, b: float, c: str, d: list[int], e: Optional[str] = None) -> None:  # noqa: UP045
    """
    Do a thing.

    Args:
        a: The first.
        b: The second.
        c: The third (choices: ["x", "y"])
        d: The fourth.
        e: The fifth.
    """


def test_transformers_takes_the_same_from_a_function() -> None:
    theirs = get_json_schema(simple)["function"]
    ours = Tool.of(simple).schema["function"]
    assert (ours["name"], ours["description"]) == (theirs["name"], theirs["description"])
    assert ours["parameters"]["required"] == theirs["parameters"]["required"]
    for name, parameter in theirs["parameters"]["properties"].items():
        own = ours["parameters"]["properties"][name]
        if name not in "ce":  # it reads choices from the text, and writes null as "nullable"
            assert {key: own[key] for key in parameter} == parameter


def test_types_become_schemas() -> None:
    def f(
        literal: Literal["a", "b"],
        number: Literal[1, 2],
        colour: Colour,
        texts: list[str],
        several: Sequence[int],
        table: dict[str, float],
        pair: tuple[int, str],
        either: int | str,
        maybe: int | None,
        anything: Any,
        point: Point,
        place: Place,
        day: date,
        some: set[int],
    ) -> None: ...

    properties = parameters_of(f)["properties"]
    definitions = parameters_of(f).get("$defs", {})
    assert properties["literal"] == {"type": "string", "enum": ["a", "b"]}
    assert properties["number"] == {"type": "integer", "enum": [1, 2]}
    assert properties["colour"] == {"type": "string", "enum": ["red", "blue"]}
    assert properties["texts"] == {"type": "array", "items": {"type": "string"}}
    assert properties["several"] == {"type": "array", "items": {"type": "integer"}}
    assert properties["table"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert properties["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert properties["either"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert properties["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert properties["anything"] == {}
    assert properties["point"]["required"] == ["x"]
    assert properties["point"]["additionalProperties"] is False
    assert properties["place"]["required"] == ["city"]
    assert properties["day"] == {"type": "string", "format": "date"}
    assert properties["some"] == {"type": "array", "items": {"type": "integer"}}
    assert definitions == {}
    assert "required" in parameters_of(f)


def test_a_type_used_twice_is_defined_once() -> None:
    def f(points: list[Point], more: dict[str, Point]) -> None: ...

    parameters = parameters_of(f)
    assert list(parameters["$defs"]) == ["Point"]
    Draft202012Validator(parameters).validate({"points": [{"x": 1}], "more": {"a": {"x": 2}}})


def test_annotations_add_descriptions_and_keywords() -> None:
    def f(n: Annotated[int, "How many.", {"minimum": 1, "maximum": 9}] = 1) -> int:
        """Count."""
        return n

    assert parameters_of(f)["properties"]["n"] == {
        "type": "integer",
        "description": "How many.",
        "minimum": 1,
        "maximum": 9,
        "default": 1,
    }
    assert "less than the minimum" in Toolbox([f]).run("f", {"n": 0})


def test_a_function_gets_values_of_its_types() -> None:
    seen: dict[str, Any] = {}

    def f(
        colour: Colour, point: Point, day: date, some: set[int], n: int, /, *, late: float = 2.5
    ) -> None:
        seen.update(locals())

    arguments = {"colour": "red", "point": {"x": 1}, "day": "2024-02-29", "some": [1, 1], "n": 3.0}
    assert Toolbox([f]).run("f", arguments) == "null"
    assert (seen["colour"], seen["point"], seen["late"]) == (Colour.RED, Point(1), 2.5)
    assert (seen["day"], seen["some"], seen["n"]) == (date(2024, 2, 29), {1}, 3)
    assert "day" in Toolbox([f]).run("f", {**arguments, "day": "2023-02-29"})


class Shop:
    """Something with a method."""

    def __init__(self) -> None:
        self.sold: list[str] = []

    def sell(self, what: str) -> int:
        """Sell it."""
        self.sold.append(what)
        return len(self.sold)


def test_a_method_is_a_tool_of_its_object() -> None:
    shop = Shop()
    toolbox = Toolbox([shop.sell])
    assert toolbox.run("sell", {"what": "tea"}) == "1"
    assert shop.sold == ["tea"]


def without_type(a: int, b) -> None:  # type: ignore[no-untyped-def]
    ...


def of_no_json(callback: Shop) -> None: ...


def collecting(*numbers: int) -> None: ...


def naming(**numbers: int) -> None: ...


async def later(a: int) -> None: ...


def unknown_name(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (without_type, "the parameter b of without_type has no type"),
        (of_no_json, "the parameter callback of of_no_json has the type Shop"),
        (collecting, "the parameter numbers of collecting collects"),
        (naming, "the parameter numbers of naming collects"),
        (later, "later is asynchronous"),
        (unknown_name, "types of unknown_name cannot be read: .*Nowhere"),
        (Shop, "is no function"),
        (3, "3 is no function"),
        (lambda: 1, "a tool is named '<lambda>'"),
    ],
)
def test_what_cannot_be_told_is_an_error_with_its_name(function: Any, complaint: str) -> None:
    with pytest.raises(ToolError, match=complaint):
        Tool.of(function)


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        [],
        {"type": "string"},
        {"type": "object", "properties": 3},
        {"properties": {"a": {"type": "text"}}},
    ],
)
def test_wrong_schemas_are_refused_with_the_name_of_the_tool(parameters: Any) -> None:
    with pytest.raises(ToolError, match="tool f"):
        Tool("f", "", parameters)


def test_descriptions_from_elsewhere_become_tools() -> None:
    inner = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    for schema in (inner, {"type": "function", "function": inner}, {"name": "f"}):
        tool = Tool.from_schema(schema)
        assert tool.schema == {"type": "function", "function": {**inner, "description": ""}}
    assert "only described" in Toolbox([Tool.from_schema(inner)]).run("f", {})
    with pytest.raises(ToolError, match="is no tool"):
        Tool.from_schema({"function": 3})


def test_every_schema_is_json_that_validates_its_own_defaults() -> None:
    for function in (google, simple):
        schema = json.loads(json.dumps(Tool.of(function).schema))["function"]["parameters"]
        for parameter in schema["properties"].values():
            if "default" in parameter:
                Draft202012Validator(parameter).validate(parameter["default"])

"""The unit converter."""

from __future__ import annotations

import json
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.tools.builtin.units import KINDS, Unit
from llamita.tools.toolbox import Toolbox

TOOLBOX = Toolbox.load("builtin:units")
UNITS = [unit for units in KINDS.values() for unit in units]


def convert(value: Any, from_unit: str, to_unit: str) -> Any:
    arguments = {"value": value, "from_unit": from_unit, "to_unit": to_unit}
    return json.loads(TOOLBOX.run("convert_units", arguments))


@pytest.mark.parametrize(
    ("value", "from_unit", "to_unit", "answer"),
    [
        (5, "mi", "km", 8.04672),
        (1, "in", "cm", 2.54),
        (3, "ft", "yd", 1),
        (1, "lb", "oz", 16),
        (1, "lb", "g", 453.59237),
        (77, "F", "C", 25),
        (-40, "C", "F", -40),
        (0, "C", "K", 273.15),
        (0, "K", "F", -459.67),
        (1, "gal", "cup", 16),
        (1, "tbsp", "tsp", 3),
        (1, "m3", "l", 1000),
        (36, "km/h", "m/s", 10),
        (1, "kn", "km/h", 1.852),
        (100, "km/h", "mph", 62.1371192237),
        (1.5, "h", "min", 90),
        (2, "wk", "d", 14),
        (1, "ha", "m2", 10000),
        (640, "acre", "ha", 258.9988110336),
        (1, "GiB", "MB", 1073.741824),
        (8, "bit", "B", 1),
        (0.1, "m", "cm", 10),
    ],
)
def test_values_are_converted_exactly(
    value: float, from_unit: str, to_unit: str, answer: float
) -> None:
    assert convert(value, from_unit, to_unit) == answer


@given(
    kind=st.sampled_from([kind for kind in KINDS if kind != "temperature"]),
    value=st.floats(-1e6, 1e6).map(lambda number: round(number, 3)),
    data=st.data(),
)
def test_there_and_back_is_where_it_was(kind: str, value: float, data: st.DataObject) -> None:
    first = data.draw(st.sampled_from(KINDS[kind]))
    second = data.draw(st.sampled_from(KINDS[kind]))
    assert convert(convert(value, first, second), second, first) == pytest.approx(value, rel=1e-10)


def test_what_cannot_be_converted_says_why() -> None:
    assert convert(1, "km", "g") == {"error": "km is a unit of length, g one of mass"}
    assert "absolute zero" in convert(-300, "C", "F")["error"]
    assert "'furlong' is not one of" in convert(1, "furlong", "m")["error"]
    assert "not of type 'number'" in convert("5", "km", "m")["error"]
    assert "too large" in convert(1e300, "km", "mm")["error"]


def test_the_schema_names_every_unit_once() -> None:
    assert list(typing.get_args(Unit)) == UNITS
    assert len(set(UNITS)) == len(UNITS)
    [schema] = TOOLBOX.schemas
    properties = schema["function"]["parameters"]["properties"]
    assert properties["from_unit"]["enum"] == properties["to_unit"]["enum"] == UNITS

"""What signatures say of types, defaults and descriptions where they are at odds."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest

from llamita.errors import ToolError
from llamita.tools import Tool, Toolbox
from llamita.tools.arguments import fits


class One:
    class Mode(enum.Enum):
        """Modes."""

        X = "x"

    @dataclasses.dataclass
    class Point:
        mode: One.Mode


class Two:
    class Mode(enum.Enum):
        """Modes."""

        P = "p"

    @dataclasses.dataclass
    class Point:
        mode: Two.Mode


def test_two_types_of_one_name_are_told_apart() -> None:
    def of_modes(a: list[One.Mode], b: list[Two.Mode], c: list[One.Mode]) -> str:
        return f"{a} {b} {c}"

    tool = Tool.of(of_modes)
    assert fits({"a": ["x"], "b": ["p"], "c": ["x"]}, tool.parameters)
    assert not fits({"a": ["p"], "b": ["x"], "c": ["x"]}, tool.parameters)
    assert len(tool.parameters["$defs"]) == 2
    assert "X" in Toolbox([tool]).run("of_modes", {"a": ["x"], "b": ["p"], "c": []})

    def of_points(a: list[One.Point], b: list[Two.Point]) -> str:
        return f"{a} {b}"

    parameters = Tool.of(of_points).parameters
    assert fits({"a": [{"mode": "x"}], "b": [{"mode": "p"}]}, parameters)
    assert not fits({"a": [], "b": [{"mode": "x"}]}, parameters)


def test_a_default_that_is_no_json_or_does_not_fit_is_left_out() -> None:
    def f(
        a: float = math.inf,
        b: Annotated[int, {"minimum": 1}] = 0,
        c: float = 1.5,
        d: list[float] = [math.nan],  # noqa: B006
    ) -> str:
        return f"{a} {b} {c} {d}"

    properties = Tool.of(f).parameters["properties"]
    assert [name for name in properties if "default" in properties[name]] == ["c"]
    json.dumps(Toolbox([f]).schemas, allow_nan=False)
    assert Toolbox([f]).run("f", {}) == '"inf 0 1.5 [nan]"'


def test_a_default_of_none_makes_a_type_optional() -> None:
    def f(x: int = None, y: Annotated[str, "a word"] = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
        return f"{x} {y}"

    toolbox = Toolbox([f])
    properties = toolbox["f"].parameters["properties"]
    assert properties["x"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert properties["y"]["description"] == "a word"
    assert toolbox.run("f", {"x": None}) == toolbox.run("f", {}) == '"None None"'
    assert toolbox.run("f", {"x": 1}) == '"1 None"'


def test_formats_that_no_text_can_be_held_to_are_left_out() -> None:
    def f(path: Path, data: bytes, wait: timedelta, format: str) -> str:
        return f"{path} {data!r} {wait} {format}"

    properties = Tool.of(f).parameters["properties"]
    assert properties["path"] == properties["data"] == properties["format"] == {"type": "string"}
    assert properties["wait"] == {"type": "string", "format": "duration"}


@pytest.mark.parametrize("key", [int, float, timedelta, bytes])
def test_keys_that_are_no_texts_are_refused(key: Any) -> None:
    def f(a: Any) -> None: ...

    f.__annotations__["a"] = list[dict[key, str]]
    with pytest.raises(ToolError, match=f"the parameter a of f has a dictionary .* {key.__name__}"):
        Tool.of(f)


def test_a_parameter_is_described_by_its_own_words_first() -> None:
    def f(
        a: One.Mode, b: One.Mode, c: Annotated[One.Mode, "the annotation's"], d: One.Point
    ) -> str:
        """F.

        Args:
            a: What a is.
            c: What c is.
            d: What d is.
        """
        return ""

    properties = Tool.of(f).parameters["properties"]
    described = [properties[name]["description"] for name in "abcd"]
    assert described == ["What a is.", "Modes.", "the annotation's", "What d is."]


def test_any_name_may_be_a_parameters() -> None:
    def f(self: int, name: int, arguments: int) -> int:
        return self + name + arguments

    assert Toolbox([f]).run("f", {"self": 1, "name": 2, "arguments": 3}) == "6"


def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


def test_a_partial_function_is_what_it_was_made_of() -> None:
    toolbox = Toolbox([functools.partial(add, b=5)])
    assert toolbox["add"].description == "Add."
    assert toolbox.run("add", {"a": 1}) == "6"


FILE = '''
from functools import lru_cache, partial
from helper_of_wrapped import imported

class Robot:
    def move(self, steps: int) -> str:
        """Move."""
        return f"moved {steps}"
    def __call__(self, x: int) -> int: return x

@lru_cache
def cached(x: int) -> int:
    """Cached."""
    return x + 1

def _plus(a: int, b: int) -> int:
    """Plus."""
    return a + b

plus_two = partial(_plus, b=2)
forward = Robot().move
robot = Robot()
longest = partial(max, 3)
'''


def test_what_is_made_of_a_files_function_is_a_tool_and_the_rest_is_named(tmp_path: Path) -> None:
    (tmp_path / "helper_of_wrapped.py").write_text(
        "from functools import lru_cache\n@lru_cache\ndef imported(x: int) -> int: return x\n"
    )
    file = tmp_path / "wrapped.py"
    file.write_text(FILE)
    with pytest.warns(UserWarning, match="no tools are longest, robot, which"):
        toolbox = Toolbox.load(file)
    assert [tool.name for tool in toolbox] == ["cached", "plus_two", "forward"]
    assert toolbox.run("cached", {"x": 1}) == "2"
    assert toolbox.run("plus_two", {"a": 1}) == "3"
    assert toolbox.run("forward", {"steps": 2}) == '"moved 2"'
    assert [tool.description for tool in toolbox] == ["Cached.", "Plus.", "Move."]


@pytest.mark.parametrize("names", ["5", "[1]", "'abc'"])
def test_all_has_to_be_a_list_of_names(tmp_path: Path, names: str) -> None:
    file = tmp_path / "my_tools.py"
    file.write_text(f"def abc() -> int: return 1\n__all__ = {names}\n")
    with pytest.raises(ToolError, match="__all__ that is"):
        Toolbox.load(file)


def test_errors_tell_their_kind() -> None:
    def lacking() -> str:
        return {}["city"]  # type: ignore[no-any-return]

    def leaving() -> None:
        raise SystemExit(3)

    def plain() -> None:
        raise ValueError("the city is too small")

    def infinite() -> float:
        return math.inf

    toolbox = Toolbox([lacking, leaving, plain, infinite])

    def said(name: str) -> str:
        return str(json.loads(toolbox.run(name, {}))["error"])

    assert said("lacking") == "KeyError: 'city'"
    assert said("leaving") == "SystemExit: 3"
    assert said("plain") == "the city is too small"
    assert "not finite" in said("infinite")

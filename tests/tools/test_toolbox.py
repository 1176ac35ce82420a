"""Running tools by name, and where they come from."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import ToolError
from llamita.tools import Tool, Toolbox
from llamita.tools.results import json_text
from llamita.tools.schemas import tool_schemas


def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


def fail(message: str) -> None:
    """Fail."""
    raise RuntimeError(message)


def leave() -> None:
    """Leave the program."""
    sys.exit(3)


def give(what: str) -> Any:
    """Give something that may have no JSON."""
    return {"nan": float("nan"), "object": object(), "set": {1}, "surrogate": "\ud800"}[what]


TOOLBOX = Toolbox([add, fail, leave, give])


def test_arguments_may_be_an_object_or_its_text() -> None:
    assert TOOLBOX.run("add", {"a": 2, "b": 3}) == "5"
    assert TOOLBOX.run("add", '{"a": 2}') == "3"


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("sub", {}, "there is no tool 'sub'; there are: add, fail, leave, give"),
        ("add", {}, "'a' is a required property"),
        ("add", {"a": "2"}, "a: '2' is not of type 'integer'"),
        ("add", {"a": True}, "a: True is not of type 'integer'"),
        ("add", {"a": 1, "c": 2}, "'c' was unexpected"),
        ("add", '{"a": 1', "no JSON"),
        ("add", '{"a": NaN}', "NaN is no JSON"),
        ("add", "[" * 5000, "no JSON"),
        ("add", "[1]", "not an object"),
        ("add", None, "not an object"),
        ("fail", {"message": "over there"}, "over there"),
        ("fail", {"message": ""}, "RuntimeError"),
        ("leave", {}, "3"),
        ("give", {"what": "nan"}, "a number that is not finite"),
        ("give", {"what": "object"}, "has no JSON"),
        ("give", {"what": "nothing"}, "nothing"),
    ],
)
def test_case_34_what_goes_wrong_is_an_answer(name: str, arguments: Any, complaint: str) -> None:
    answer = json.loads(TOOLBOX.run(name, arguments))
    assert list(answer) == ["error"]
    assert complaint in answer["error"]


@given(name=st.text(max_size=5) | st.just("add"), arguments=st.text() | st.dictionaries(
    st.sampled_from("abc"), st.none() | st.integers() | st.floats() | st.text()))  # fmt: skip
def test_running_never_raises_and_always_gives_json(name: str, arguments: Any) -> None:
    answer = TOOLBOX.run(name, arguments)
    json.loads(answer)
    answer.encode()


def test_ctrl_c_in_a_tool_is_the_users() -> None:
    def wait() -> None:
        """Wait."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Toolbox([wait]).run("wait", {})


def test_results_are_json_of_what_python_has() -> None:
    assert TOOLBOX.run("give", {"what": "set"}) == "[1]"
    assert TOOLBOX.run("give", {"what": "surrogate"}) == '"?"'
    assert json_text(Decimal("0.10")) == "0.10"
    assert json_text(Decimal("1e25")) == "1" + "0" * 25
    assert json_text(Decimal("1e-30")) == "1e-30"
    assert json_text({"a": [Decimal(1), "é", None]}) == '{"a": ["1", "é", null]}'


def test_a_name_stands_once() -> None:
    with pytest.raises(ToolError, match="two tools named add"):
        Toolbox([add, add])
    assert len(TOOLBOX) == 4
    assert "add" in TOOLBOX
    assert TOOLBOX["add"].name == "add"


def test_a_reference_to_the_net_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *args, **named: asked.append(args))
    parameters = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}}
    answer = Toolbox([Tool("f", "", parameters, lambda a: a)]).run("f", {"a": 1})
    assert "cannot be used" in json.loads(answer)["error"]
    assert asked == []


def test_tools_of_every_form_are_described_alike() -> None:
    tool = Tool.of(add)
    assert tool_schemas(Toolbox([add])) == tool_schemas([add]) == tool_schemas([tool])
    assert tool_schemas([tool.schema]) == [tool.schema]
    assert tool_schemas(None) is None


FILE = '''
"""My tools."""
from __future__ import annotations
from json import loads
from helper_of_tools import double

LIMIT = 3

class Thing:
    """Not a tool."""

def twice(x: int) -> int:
    """Twice."""
    return double(x)

def _private(x) -> None: ...
'''


def test_the_public_functions_of_a_file_are_tools(tmp_path: Path) -> None:
    (tmp_path / "helper_of_tools.py").write_text("def double(x): return 2 * x\n")
    (tmp_path / "my_tools.py").write_text(FILE)
    toolbox = Toolbox.load(tmp_path / "my_tools.py")
    assert [tool.name for tool in toolbox] == ["twice"]
    assert toolbox.run("twice", {"x": 4}) == "8"


def test_all_names_the_tools_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my_tools.py"
    file.write_text(
        "from llamita.tools import Tool\n"
        "def a(x: int) -> int: return x\n"
        "def b(x) -> int: return x\n"
        "c = Tool('c', 'C.', {'type': 'object', 'properties': {}}, lambda: 1)\n"
        "__all__ = ['a', 'c']\n"
    )
    assert [tool.name for tool in Toolbox.load(file)] == ["a", "c"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "has no public function"),
        ("x = 1\nx.y\n", r"my_tools\.py:2 cannot be run: AttributeError"),
        ("def f(:\n", r"my_tools\.py:1 cannot be run: SyntaxError"),
        ("import nothing_of_that_name\n", r"my_tools\.py:1 cannot be run: ModuleNotFoundError"),
        ("raise SystemExit(2)\n", r"my_tools\.py:1 cannot be run: SystemExit"),
        ("def f(x): ...\n", r"my_tools\.py: the parameter x of f has no type"),
        ("__all__ = ['g']\n", "names 'g' in __all__"),
    ],
)
def test_a_file_that_gives_no_tools_says_why(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "my_tools.py"
    file.write_text(content)
    with pytest.raises(ToolError, match=complaint):
        Toolbox.load(file)


@pytest.mark.parametrize("spec", ["nothing.py", "nothing", "builtins", "''"])
def test_what_names_no_tools_is_refused(spec: str) -> None:
    with pytest.raises(ToolError, match=spec):
        Toolbox.load(spec)

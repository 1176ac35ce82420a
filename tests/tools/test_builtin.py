"""Notes, timers, and how the built-in tools are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llamita.errors import ToolError
from llamita.tools import Toolbox
from llamita.tools.builtin import BUILT_IN, builtin_tools


def ask(toolbox: Toolbox, name: str, **arguments: Any) -> Any:
    return json.loads(toolbox.run(name, arguments))


def test_notes_keep_their_numbers() -> None:
    toolbox = Toolbox.load("builtin:notes")
    assert ask(toolbox, "list_notes") == []
    assert ask(toolbox, "add_note", text="milk") == {"number": 1}
    assert ask(toolbox, "add_note", text="eggs") == {"number": 2}
    assert ask(toolbox, "delete_note", number=1) == {"deleted": "milk"}
    assert ask(toolbox, "add_note", text="bread") == {"number": 3}
    assert ask(toolbox, "list_notes") == [
        {"number": 2, "text": "eggs"},
        {"number": 3, "text": "bread"},
    ]
    assert ask(toolbox, "delete_note", number=1) == {"error": "there is no note 1"}
    assert "error" in ask(toolbox, "add_note", text="")
    assert ask(Toolbox.load("builtin:notes"), "list_notes") == []


def test_notes_of_a_file_are_there_again(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    toolbox = Toolbox(builtin_tools(["notes"], notes_file=file))
    assert not file.exists()
    for text in ("Հայերեն", "b"):
        ask(toolbox, "add_note", text=text)
    ask(toolbox, "delete_note", number=2)
    again = Toolbox(builtin_tools(["notes"], notes_file=file))
    assert ask(again, "list_notes") == [{"number": 1, "text": "Հայերեն"}]
    assert ask(again, "add_note", text="c") == {"number": 3}


@pytest.mark.parametrize(
    "content",
    [
        *("[]", "{}", '{"last": 1, "notes": {"1": 2}}', "{", '{"last":'),
        '{"last": Infinity, "notes": {}}',
        '{"last": 1e999, "notes": {}}',
        '{"last": 1, "notes": {"0": "a"}}',
        '{"last": 1, "notes": {"-3": "a"}}',
    ],
)
def test_a_file_that_holds_no_notes_is_left_alone(tmp_path: Path, content: str) -> None:
    file = tmp_path / "notes.json"
    file.write_text(content)
    with pytest.raises(ToolError, match=r"notes\.json"):
        builtin_tools(notes_file=file)
    assert file.read_text() == content


def test_a_note_that_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    toolbox = Toolbox(builtin_tools(["notes"], notes_file=folder / "notes.json"))
    folder.rmdir()
    folder.write_text("a file is in the way")
    assert "error" in ask(toolbox, "add_note", text="milk")
    assert ask(toolbox, "list_notes") == []


def test_timers_count_down_by_their_clock() -> None:
    now = [100.0]
    toolbox = Toolbox(builtin_tools(["timers"], clock=lambda: now[0]))
    assert ask(toolbox, "set_timer", seconds=300, label="tea") == {
        "timer": 1,
        "seconds": 300,
        "label": "tea",
    }
    now[0] += 100.5
    ask(toolbox, "set_timer", seconds=10)
    assert ask(toolbox, "list_timers") == [
        {"timer": 1, "label": "tea", "seconds_left": 200},
        {"timer": 2, "label": "", "seconds_left": 10},
    ]
    now[0] += 1000
    assert [timer["seconds_left"] for timer in ask(toolbox, "list_timers")] == [0, 0]
    for seconds in (0, -1, 1.5, True, 10**9):
        assert "error" in ask(toolbox, "set_timer", seconds=seconds)


def test_built_in_tools_are_named_by_group_or_one_by_one() -> None:
    every = [tool.name for tool in Toolbox.load("builtin")]
    assert every == [name for names in BUILT_IN.values() for name in names]
    some = Toolbox.load("builtin:list_notes, calculator")
    assert [tool.name for tool in some] == ["calculator", "list_notes"]
    with pytest.raises(ToolError, match="'clock'") as raised:
        Toolbox.load("builtin:notes,clock")
    assert "calculator" in str(raised.value.hint)


def test_every_built_in_tool_says_what_its_parameters_are() -> None:
    for schema in Toolbox.load("builtin").schemas:
        function = schema["function"]
        assert function["description"]
        assert function["parameters"]["additionalProperties"] is False
        for parameter in function["parameters"]["properties"].values():
            assert parameter["type"]
            assert parameter["description"]


def test_timers_that_are_over_make_room() -> None:
    now = [0.0]
    toolbox = Toolbox(builtin_tools(["timers"], clock=lambda: now[0]))
    for number in range(100):
        assert ask(toolbox, "set_timer", seconds=1 + number)["timer"] == number + 1
    assert "100 timers are running" in ask(toolbox, "set_timer", seconds=5)["error"]
    now[0] = 2.0
    assert ask(toolbox, "set_timer", seconds=500) == {"timer": 101, "seconds": 500, "label": ""}
    assert [timer["timer"] for timer in ask(toolbox, "list_timers")] == [*range(2, 102)]


def test_a_timer_may_be_cancelled() -> None:
    toolbox = Toolbox(builtin_tools(["timers"], clock=lambda: 0.0))
    ask(toolbox, "set_timer", seconds=10, label="tea")
    assert ask(toolbox, "cancel_timer", timer=1) == {"cancelled": 1, "label": "tea"}
    assert ask(toolbox, "cancel_timer", timer=1) == {"error": "there is no timer 1"}
    assert ask(toolbox, "set_timer", seconds=10)["timer"] == 2
    assert len(ask(toolbox, "list_timers")) == 1


def test_a_file_of_notes_may_have_other_writers(tmp_path: Path) -> None:
    spec = f"builtin:notes={tmp_path / 'notes.json'}"
    one, other = Toolbox.load(spec), Toolbox.load(spec)
    assert ask(one, "add_note", text="a") == {"number": 1}
    assert ask(other, "add_note", text="b") == {"number": 2}
    assert ask(one, "delete_note", number=2) == {"deleted": "b"}
    assert ask(other, "list_notes") == [{"number": 1, "text": "a"}]


@pytest.mark.parametrize("spec", ["builtin:notes=", "builtin:timers=x", "builtin:notes=a,notes=b"])
def test_notes_alone_have_a_file(spec: str) -> None:
    with pytest.raises(ToolError, match="built-in tools are given as"):
        Toolbox.load(spec)

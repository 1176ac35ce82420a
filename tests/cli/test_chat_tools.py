"""`llamita chat --tools`: what its tools print and read, what is asked, what is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llamita.cli import chat_tools
from llamita.cli.aside import aside
from llamita.cli.chat_tools import shown_call
from tests.cli.test_chat import FILE, Chat, Screen, Terminal, call, chat
from tests.inference.test_tool_loop import MULTIPLY

__all__ = ["chat"]

LOUD = '''
import os
print("loading")
def hello() -> str:
    """Hello."""
    print("inside")
    return "hello"
def ask() -> str:
    """Ask."""
    return input("name? ")
'''


@pytest.fixture
def loud(tmp_path: Path) -> str:
    (tmp_path / "loud.py").write_text(LOUD)
    return str(tmp_path / "loud.py")


def test_what_tools_print_is_no_part_of_the_answer(chat: Chat, loud: str) -> None:
    code, out, err = chat([call("hello"), "Ok."], b"hi", "--tools", loud, "--yes", "--json")
    assert code == 0
    assert json.loads(out)["messages"][-1]["content"] == "Ok."
    assert "loading" in err
    assert "inside" in err


def test_tools_do_not_read_what_the_user_says(chat: Chat, loud: str) -> None:
    turns = [call("ask"), "Ok.", "Two."]
    code, out, err = chat(turns, b"hi\nsecond\n", "--tools", loud, "--yes")
    assert (code, out) == (0, "Ok.\nTwo.\n")
    assert "EOFError" in err


def test_child_processes_are_kept_aside_too() -> None:
    program = (
        "import os, sys\n"
        "from llamita.cli.aside import aside\n"
        "with aside():\n"
        "    os.system('echo child; cat')\n"
        "    print('tool', repr(sys.stdin.read()))\n"
        "    sys.__stdout__.write('raw\\n')\n"
        "print('answer', sys.stdin.read())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input="typed", capture_output=True, text=True, check=True
    )
    assert done.stdout == "answer typed\n"
    assert sorted(done.stderr.splitlines()) == ["child", "raw", "tool ''"]


def test_all_is_as_before_when_a_tool_fails() -> None:
    streams = sys.stdin, sys.stdout
    with pytest.raises(KeyboardInterrupt), aside():
        raise KeyboardInterrupt
    assert (sys.stdin, sys.stdout) == streams


@pytest.mark.parametrize("word", ["abort", "aye", "yesterday", "nay", "all"])
def test_only_the_words_that_are_asked_for_are_answers(
    chat: Chat, tmp_path: Path, word: str
) -> None:
    (tmp_path / "my_tools.py").write_text(FILE)
    turns = [call("touch", file=str(tmp_path / "x")), "Well."]
    said = Terminal("go", word, "no")
    _, _, err = chat(turns, said, "--tools", str(tmp_path / "my_tools.py"))
    assert not (tmp_path / "x").exists()
    assert err.count("Run touch(") == 2


def test_what_was_typed_before_the_question_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pty = pytest.importorskip("pty", reason="pseudo-terminals are a matter of Unix")
    person, terminal = pty.openpty()
    os.write(person, b"y\n")

    class Answering(Screen):
        def write(self, text: str) -> int:
            os.write(person, b"n\n")
            return super().write(text)

    with open(terminal, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stderr", Answering())
        assert chat_tools._ask("Run it? ") == "n"
    os.close(person)


def test_a_long_call_is_shown_by_its_ends() -> None:
    text = shown_call("f", {"a": "b" * 5000, "z": "end"})
    assert len(text) < 1000
    assert "characters]" in text
    assert '"end"})' in text


def test_both_sources_of_a_name_are_told(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def list_notes() -> str:\n    return ''\n")
    code, _, err = chat(["A."], b"hello", "--tools", "builtin", "--tools", str(file))
    assert code == 2
    assert f"two tools named list_notes, of builtin and of {file}" in err


def test_a_schema_that_cannot_be_enforced_is_told_before_the_first_question(
    chat: Chat, tmp_path: Path
) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from typing import Annotated\n"
        "def good(a: int) -> int: return a\n"
        "def bad(a: Annotated[str, {'pattern': '(?=a)b'}]) -> str: return a\n"
    )
    code, out, err = chat(["A."], b"", "--tools", str(file))
    assert (code, out) == (2, "")
    assert "the tool bad" in err
    assert "--free-calls" in err
    assert chat(["A."], b"hello", "--tools", str(file), "--free-calls")[:2] == (0, "A.\n")


def test_notes_may_be_kept_in_a_file(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "my notes.json"
    turns = [call("add_note", text="milk"), "Noted."]
    for _ in range(2):
        code, _, _ = chat(turns, b"milk!", "--tools", f"builtin:calculator,notes={file}")
        assert code == 0
    assert json.loads(file.read_text())["notes"] == {"1": "milk", "2": "milk"}


def test_what_was_answered_is_printed_whatever_ends_the_chat(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = chat(["One.", "Two."], b"a\n\xff\n", "--json")
    assert code == 2
    assert [message["content"] for message in json.loads(out)["messages"]] == ["a", "One."]
    assert "line 2" in err
    from llamita.cli import chat_session

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(chat_session, "run_tools", stopped)
    code, out, _ = chat(["One."], b"a\n", "--json")
    assert code == 130
    assert json.loads(out) == {"messages": [], "finish_reason": None}


def test_a_turn_whose_tools_have_run_is_kept(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamita.errors import GenerationError
    from llamita.inference import tool_loop

    def failing(*_: Any) -> str:
        raise GenerationError("no more")

    run = tool_loop._run
    results = [run, failing]
    monkeypatch.setattr(tool_loop, "_run", lambda *args: results.pop(0)(*args))
    turns = [MULTIPLY + MULTIPLY, "Yes."]
    code, _, err = chat(turns, Terminal("One", "Two"), "--tools", "builtin:calculator")
    assert code == 0
    assert "no more" in err
    assert "108" in chat.prompts()[1]
    assert "the turn ended before" in chat.prompts()[1]


def test_two_strokes_say_what_begins_with_one(chat: Chat) -> None:
    code, out, err = chat(["A."], Terminal("/usr", "//usr"))
    assert (code, out) == (0, "A.\n")
    assert "//usr says it" in err
    assert "user\n/usr<|im_end|>" in chat.prompts()[0]

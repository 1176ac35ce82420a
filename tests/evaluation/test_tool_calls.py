"""Tool calls judged: what is exact, what is silence, what is valid, and how far figures scatter."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from llamita.config import preset
from llamita.data.tool_tasks.generate import tool_tasks
from llamita.errors import DataError
from llamita.evaluation.tool_calls import tool_calls
from llamita.evaluation.tool_cases import read_tool_cases
from llamita.inference.lm import LM
from llamita.inference.results import Generation
from llamita.tokenizer.chat import ChatFormat
from tests.inference.conftest import make_model
from tests.inference.tool_cases import CONTROL, TEMPLATES, byte_tokenizer

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 1}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}
TOKENIZER = byte_tokenizer(CONTROL).with_chat_template(TEMPLATES["hermes"])


def _call(**arguments: Any) -> dict[str, Any]:
    function = {"name": "add", "arguments": json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}


def _user(text: str = "2 and 3?") -> dict[str, Any]:
    return {"role": "user", "content": text}


def _text(text: str = "Hello.") -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _written(name: str, arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def _file(folder: Path, *lines: dict[str, Any]) -> list[Path]:
    path = folder / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return [path]


class Says:
    """A model that says these texts, one after the other."""

    def __init__(self, *texts: str, cut: bool = False) -> None:
        self.chat_format = ChatFormat.of(TOKENIZER)
        self.config = preset("demo", 300, max_position_embeddings=2000)
        self._texts, self._reason = list(texts), "length" if cut else "stop"

    def chat_prompt(self, messages: Any, tools: Any) -> list[int]:
        return self.chat_format.encode(messages, tools, True)

    def chat(self, chats: Any, tools: Any, **settings: Any) -> list[Generation]:
        assert settings["temperature"] == 0
        assert len(chats) == len(tools)
        found = []
        for _ in chats:
            text = self._texts.pop(0)
            message = self.chat_format.parse(text)
            found.append(Generation(text, [], self._reason, None, [], message))  # type: ignore[arg-type]
        return found


def _figures(folder: Path, line: dict[str, Any], *texts: str) -> dict[str, Any]:
    cases = read_tool_cases(_file(folder, line))
    return tool_calls(Says(*texts), cases).summary()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "exact", "name", "valid"),
    [
        (_written("add", {"a": 2, "b": 3}), 1, 1, 1),
        (_written("add", {"b": 3, "a": 2.0}), 1, 1, 1),
        (_written("add", {"a": 2, "b": 4}), 0, 1, 1),
        (_written("add", {"a": 2}), 0, 1, 1),
        (_written("add", {"a": 2, "b": 3, "c": 4}), 0, 1, 0),
        (_written("add", {"a": "2", "b": 3}), 0, 1, 0),
        (_written("add", {"a": True, "b": 3}), 0, 1, 0),
        (_written("sub", {"a": 2, "b": 3}), 0, 0, 0),
        (_written("add", {"a": 2, "b": 3}) * 2, 0, 0, 1),
        ('<tool_call>{"name": "add", "argum', 0, 0, 0),
        ("It is 5.", 0, 0, None),
    ],
)
def test_a_call_is_judged(
    said: str, exact: float, name: float, valid: float | None, tmp_path: Path
) -> None:
    line = {"messages": [_user(), _call(a=2, b=3)], "tools": [ADD]}
    figures = _figures(tmp_path, line, said)
    assert figures["exact_call_accuracy"] == exact
    assert figures["name_accuracy"] == name
    assert figures["turns_with_calls"] == 1
    assert math.isnan(figures["abstention_accuracy"])
    rate = figures["valid_call_rate"]
    assert math.isnan(rate) if valid is None else rate == valid


def test_an_argument_left_out_has_its_default(tmp_path: Path) -> None:
    line = {"messages": [_user(), _call(a=2, b=1)], "tools": [ADD]}
    assert _figures(tmp_path, line, _written("add", {"a": 2}))["exact_call_accuracy"] == 1


@pytest.mark.parametrize(
    ("said", "right"),
    [("Hi!", 1), ("", 1), (_written("add", {"a": 1}), 0), ('<tool_call>{"na', 0)],
)
def test_silence_is_judged(said: str, right: float, tmp_path: Path) -> None:
    line = {"messages": [_user("Hello"), _text()], "tools": [ADD]}
    assert _figures(tmp_path, line, said)["abstention_accuracy"] == right


def test_turns_that_call_and_that_answer_a_user_are_cases(tmp_path: Path) -> None:
    result = {"role": "tool", "content": "5"}
    messages = [
        *(_user(), _call(a=2, b=3), result, _text("5")),
        *(_user("Thanks"), _text()),
        *(_user("1 and 1?"), _call(a=1), result, _call(a=2), result, _text("3")),
    ]
    line = {"messages": messages, "tools": [ADD], "kinds": ["sum", "talk", "two sums"]}
    cases = read_tool_cases(_file(tmp_path, line, {"messages": [_user(), _call(a=2)]}))
    assert [(len(case.messages), case.kind) for case in cases] == [
        *((1, "sum"), (5, "talk"), (7, "two sums"), (9, "two sums"), (1, "add")),
    ]
    assert [case.conversation for case in cases] == [0, 0, 0, 0, 1]
    assert cases[1].calls == ()
    assert cases[3].calls == (("add", {"a": 2}),)


def test_calls_written_into_the_text_are_calls(tmp_path: Path) -> None:
    said = {"from": "gpt", "value": _written("add", {"a": 2, "b": 3})}
    line = {"conversations": [{"from": "human", "value": "2 and 3?"}, said], "tools": [ADD]}
    [case] = read_tool_cases(_file(tmp_path, line))
    assert case.calls == (("add", {"a": 2, "b": 3}),)


def test_parallel_calls_count_in_any_order(tmp_path: Path) -> None:
    both = _call(a=1)
    both["tool_calls"] += _call(a=2)["tool_calls"]
    line = {"messages": [_user(), both], "tools": [ADD]}
    said = "\n".join((_written("add", {"a": 2}), _written("add", {"a": 1})))
    assert _figures(tmp_path, line, said)["exact_call_accuracy"] == 1
    said = "\n".join((_written("add", {"a": 2}), _written("add", {"a": 2})))
    assert _figures(tmp_path, line, said)["exact_call_accuracy"] == 0


def test_the_standard_error_is_over_conversations(tmp_path: Path) -> None:
    """Turns of one conversation that are right or wrong together are no more than one of them."""
    right, wrong = _written("add", {"a": 2}), "No."
    turns = [_user(), _call(a=2)]
    lines = [{"messages": turns * 4, "tools": [ADD]}] * 6
    cases = read_tool_cases(_file(tmp_path, *lines))
    texts = ([right] * 4 + [wrong] * 4) * 3
    figures = tool_calls(Says(*texts), cases).summary()  # type: ignore[arg-type]
    assert figures["exact_call_accuracy"] == 0.5
    # of six independent halves; 24 independent turns would have 0.104
    assert figures["exact_call_accuracy_stderr"] == pytest.approx(0.5 / math.sqrt(5), rel=0.1)
    assert figures["by_kind"]["add"]["turns"] == 24


@pytest.mark.parametrize(("answer", "figure"), [(True, "exact_call"), (False, "abstention")])
def test_a_chat_beyond_the_context_is_wrong_and_counted(
    answer: bool, figure: str, tmp_path: Path
) -> None:
    turn = _call(a=2) if answer else _text()
    line = {"messages": [_user("word " * 500), turn], "tools": [ADD]}
    figures = _figures(tmp_path, line)
    assert figures[f"{figure}_accuracy"] == 0
    assert (figures["turns_not_asked"], figures["cut_answers"]) == (1, 0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"text": "no chat"}, "no chat"),
        ({"messages": [_user()]}, "assistant says nothing"),
        ({"messages": [_text(), _user()]}, "no turn of an assistant"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    line: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=words):
        read_tool_cases(_file(tmp_path, line))


def test_a_model_that_knows_nothing_makes_valid_calls_alone_where_it_is_constrained(
    tmp_path: Path,
) -> None:
    """A real engine, in batches, with lists of tools that differ."""
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(map(json.dumps, tool_tasks("test", 5))), encoding="utf-8")
    cases = read_tool_cases([path])
    model = make_model(vocab_size=TOKENIZER.vocab_size, max_position_embeddings=3000)
    seen: list[int] = []
    results = tool_calls(
        LM(model, TOKENIZER), cases, max_tokens=8, progress=lambda done: seen.append(done)
    )
    figures = results.summary()
    assert figures["turns"] == len(cases) == sum(seen)
    assert figures["exact_call_accuracy"] == 0
    assert {case.kind for case in cases} == set(figures["by_kind"])

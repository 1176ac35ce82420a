"""The forms of chats, told apart line by line, and what is wrong in one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llamita.errors import DataError
from llamita.text.chats import Chat, read_chat
from llamita.text.documents import Document, read_files
from llamita.text.sources import find_text_files

SAID = [{"role": "user", "content": "12*9?"}, {"role": "assistant", "content": "108"}]
TOOL = {"name": "times", "description": "a × b", "parameters": {"type": "object"}}
CALL = {"type": "function", "function": {"name": "times", "arguments": {"a": 12, "b": 9}}}


def _read(line: dict[str, Any]) -> Chat:
    chat = read_chat(line, "chats.jsonl:1")
    assert chat is not None
    return chat


@pytest.mark.parametrize(
    ("line", "messages", "tools"),
    [
        ({"messages": SAID}, SAID, None),
        ({"messages": SAID, "tools": [TOOL]}, SAID, [TOOL]),
        ({"messages": SAID, "tools": json.dumps([TOOL])}, SAID, [TOOL]),
        ({"messages": SAID, "tools": [], "parallel_tool_calls": False}, SAID, None),
        ({"messages": SAID, "functions": [TOOL]}, SAID, [TOOL]),
        ({"messages": SAID, "conversations": None}, SAID, None),
        (
            {
                "messages": [
                    SAID[0],
                    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **CALL}]},
                    {"role": "tool", "tool_call_id": "c", "content": "108"},
                ]
            },
            [
                SAID[0],
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **CALL}]},
                {"role": "tool", "tool_call_id": "c", "content": "108"},
            ],
            None,
        ),
        (
            {
                "messages": [
                    SAID[0],
                    {"role": "assistant", "content": None, "function_call": CALL["function"]},
                    {"role": "function", "name": "times", "content": "108", "function_call": None},
                ]
            },
            [
                SAID[0],
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "function", "name": "times", "content": "108"},
            ],
            None,
        ),
        (
            {
                "conversations": [
                    {"from": "human", "value": "12*9?"},
                    {"from": "gpt", "value": "108"},
                ]
            },
            SAID,
            None,
        ),
        (
            {
                "conversations": [
                    {"from": "user", "value": "12*9?"},
                    {"from": "assistant", "value": "108"},
                ],
                "system": "Count.",
                "tools": "",
            },
            [{"role": "system", "content": "Count."}, *SAID],
            None,
        ),
        (
            {
                "conversations": [
                    {"from": "human", "value": "12*9?"},
                    {"from": "function_call", "value": json.dumps(CALL["function"])},
                    {"from": "observation", "value": "<tool_response>\n108\n</tool_response>"},
                    {"from": "gpt", "value": "108"},
                ],
                "tools": json.dumps([TOOL]),
            },
            [
                SAID[0],
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "tool", "content": "108"},
                SAID[1],
            ],
            [TOOL],
        ),
        ({"conversations": SAID}, SAID, None),
        ({"instruction": "12*9?", "input": "", "output": "108", "messages": None}, SAID, None),
        (
            {"instruction": "Add.", "input": "1 2", "output": "3", "system": "Be brief."},
            [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Add.\n1 2"},
                {"role": "assistant", "content": "3"},
            ],
            None,
        ),
        (
            {"instruction": "And 2?", "output": "two", "history": [["1?", "one"]]},
            [
                {"role": "user", "content": "1?"},
                {"role": "assistant", "content": "one"},
                {"role": "user", "content": "And 2?"},
                {"role": "assistant", "content": "two"},
            ],
            None,
        ),
    ],
)
def test_every_form_becomes_messages_and_tools(
    line: dict[str, Any], messages: list[Any], tools: list[Any] | None
) -> None:
    chat = _read(line)
    assert chat.messages == messages
    assert chat.tools == tools


def test_answers_of_several_tools_in_one_turn_are_several_messages() -> None:
    value = "<tool_response>1</tool_response>\n<tool_response>2</tool_response>"
    turns = [{"from": "tool", "value": value}, {"from": "gpt", "value": "ok"}]
    said = [m["content"] for m in _read({"conversations": turns}).messages]
    assert said == ["1", "2", "ok"]
    mixed = [{"from": "tool", "value": f"see {value}"}, {"from": "gpt", "value": "ok"}]
    assert _read({"conversations": mixed}).messages[0]["content"] == f"see {value}"


@pytest.mark.parametrize("line", [{}, {"text": "a"}, {"question": "a", "answer": "b"}])
def test_a_line_with_no_key_of_a_chat_is_none(line: dict[str, Any]) -> None:
    assert read_chat(line, "x:1") is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"messages": SAID, "conversations": []}, "two forms at once: it has messages and conv"),
        ({"messages": "hello"}, 'messages is "hello", which is no list'),
        ({"messages": []}, "the list of messages is empty"),
        ({"messages": [SAID[0]]}, "the assistant says nothing"),
        ({"messages": [{"role": "assistant", "content": ""}]}, "the assistant says nothing"),
        ({"messages": [{"role": "robot", "content": "x"}]}, '"robot"'),
        ({"messages": SAID, "tools": "no json"}, "its tools are a text that is no JSON"),
        ({"messages": SAID, "tools": {"a": 1}}, "its tools are"),
        ({"messages": SAID, "tools": [{}]}, "tool 0 is"),
        ({"messages": SAID, "tools": [TOOL], "functions": [TOOL]}, "both tools and functions"),
        ({"messages": SAID, "images": ["a.png"]}, "it has images"),
        ({"conversations": [{"from": "human"}]}, 'turn 0 is {"from": "human"}'),
        ({"conversations": [{"from": "robot", "value": "x"}]}, 'turn 0 is from "robot"'),
        ({"conversations": [{"from": "gpt", "value": 3}]}, "the value of turn 0 is 3"),
        ({"conversations": [{"from": "function_call", "value": "{"}]}, "function_call of turn 0"),
        ({"conversations": [{"from": "function_call", "value": "{}"}]}, "has no name"),
        ({"instruction": "a"}, "has no output"),
        ({"instruction": "a", "output": ""}, "the assistant says nothing"),
        ({"instruction": 3, "output": "b"}, "has the instruction 3"),
        ({"instruction": "a", "output": "b", "history": [["x"]]}, 'its history holds ["x"]'),
        (
            {
                "conversations": [
                    {"from": "system", "value": "A"},
                    {"from": "gpt", "value": "b"},
                ],
                "system": "B",
            },
            "begins with another one",
        ),
    ],
)
def test_a_wrong_chat_is_named_with_its_place(line: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError) as error:
        read_chat(line, "chats.jsonl:7")
    assert error.value.message.startswith("chats.jsonl:7")
    assert words in error.value.message


def _documents(path: Path, lines: list[Any], field: str = "messages") -> list[Document]:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return list(read_files(find_text_files([path]).files, field=field, chats=True))


def test_forms_may_stand_in_one_file_line_by_line(tmp_path: Path) -> None:
    lines = [
        {"messages": SAID},
        {"conversations": [{"from": "human", "value": "12*9?"}, {"from": "gpt", "value": "108"}]},
        {"instruction": "12*9?", "output": "108", "text": "### Instruction: 12*9?"},
    ]
    documents = _documents(tmp_path / "chats.jsonl", lines)
    assert [document.chat for document in documents] == [Chat(SAID)] * 3
    # Where texts are read too, a text counts before a chat.
    read = _documents(tmp_path / "chats.jsonl", lines, "text")
    assert [document.chat is None for document in read] == [False, False, True]


def test_a_line_that_is_no_chat_is_named_with_what_was_expected(tmp_path: Path) -> None:
    lines = [{"messages": SAID}, {"prompt": "a", "completion": "b"}]
    with pytest.raises(DataError, match=r"chats\.jsonl:2 is no chat.*'prompt'") as error:
        _documents(tmp_path / "chats.jsonl", lines)
    for form in ("messages", "conversations", "instruction"):
        assert form in (error.value.hint or "")


def test_a_whole_list_in_one_line_gets_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a list, not a JSON object") as error:
        _documents(tmp_path / "chats.jsonl", [[{"messages": SAID}]])
    assert "jq -c" in (error.value.hint or "")


@pytest.mark.parametrize("form", ["messages", "conversations"])
def test_what_a_tool_answered_loses_its_tags_in_every_form(form: str) -> None:
    asked = [SAID[0], {"role": "assistant", "content": "", "tool_calls": [{"id": "c", **CALL}]}]
    one = {"role": "tool", "tool_call_id": "c", "content": "<tool_response>\n108\n</tool_response>"}
    chat = _read({form: [*asked, one, SAID[1]]})
    assert chat.messages[2] == {"role": "tool", "tool_call_id": "c", "content": "108"}
    both = {**one, "content": "<tool_response>1</tool_response>\n<tool_response>2</tool_response>"}
    chat = _read({form: [*asked, both, SAID[1]]})
    assert chat.messages[2:4] == [{"role": "tool", "content": text} for text in "12"]
    for text in ("108", "see <tool_response>1</tool_response>"):
        chat = _read({form: [*asked, {"role": "tool", "content": text}, SAID[1]]})
        assert chat.messages[2]["content"] == text


def test_a_json_file_that_is_named_is_a_list_of_chats_or_lines(tmp_path: Path) -> None:
    alpaca = [{"instruction": "12*9?", "input": "", "output": "108"}] * 2
    whole = tmp_path / "alpaca.json"
    whole.write_text(json.dumps(alpaca, indent=2))
    lines = tmp_path / "lines.JSON"
    lines.write_text("".join(json.dumps(line) + "\n" for line in alpaca))
    for path, places in ((whole, ("[0]", "[1]")), (lines, (":1", ":2"))):
        found = list(read_files(find_text_files([path]).files, field="messages", chats=True))
        assert [document.source for document in found] == [f"{path}{place}" for place in places]
        assert [document.chat for document in found] == [Chat(SAID)] * 2
    whole.write_text(json.dumps([*alpaca, {"prompt": "a"}]))
    with pytest.raises(DataError, match=r"alpaca\.json\[2\] is no chat"):
        list(read_files(find_text_files([whole]).files, field="messages", chats=True))
    whole.write_text("[1, ")
    with pytest.raises(DataError, match="begins as a JSON list and is none"):
        list(read_files(find_text_files([whole]).files, field="messages", chats=True))
    # In folders most files of this suffix are no text.
    with pytest.raises(DataError, match="no text files"):
        find_text_files([tmp_path])

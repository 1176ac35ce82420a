"""Answers that are no calls, and calls that are not run: no tools, cut off, too many, no room."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llamita.errors import GenerationError
from llamita.inference.lm import LM
from llamita.inference.tool_loop import MOST_CALLS, LoopEvent, run_tools
from llamita.tokenizer.chat_tools import Syntax
from llamita.tools import Toolbox
from tests.inference.test_tool_loop import ASK, CONTROL, MULTIPLY, PLAIN, TOOLBOX, saying
from tests.inference.tool_cases import TEMPLATES, byte_tokenizer
from tests.inference.turns_backend import turns_lm

CALLS: dict[Syntax, str] = {
    "hermes": MULTIPLY,
    "llama3": '{"name": "calculator", "parameters": {"expression": "12*9"}}',
    "json": '{"name": "calculator", "arguments": {"expression": "12*9"}}',
}


EMPTY = ("{{ tools | tojson }}", "{% if tools %}{{ tools | tojson }}{% endif %}")


def in_syntax(syntax: Syntax, *turns: str) -> LM:
    control = (
        *PLAIN,
        "<|begin_of_text|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
    )
    tokenizer = byte_tokenizer(control).with_chat_template(TEMPLATES[syntax].replace(*EMPTY))
    end = tokenizer.special_tokens["<|eot_id|>" if syntax == "llama3" else "<eos>"]
    if syntax == "hermes":
        end = tokenizer.special_tokens["<|im_end|>"]
    return turns_lm([[*tokenizer.encode(turn), end] for turn in turns], tokenizer)


@pytest.mark.parametrize("syntax", CALLS)
def test_without_tools_no_answer_is_a_call(syntax: Syntax) -> None:
    said = {"role": "assistant", "content": CALLS[syntax]}
    lm = in_syntax(syntax, CALLS[syntax])
    assert lm.chat(ASK, temperature=0).message == said
    if syntax != "hermes":
        assert lm.chat(ASK, [], temperature=0, schema={"type": "object"}).message == said
    assert run_tools(lm, ASK, Toolbox(), temperature=0) == [said]
    batch = lm.chat([ASK], [[*TOOLBOX]], temperature=0, constrain_tools=False)
    assert batch[0].tool_calls != []


@pytest.mark.parametrize("syntax", CALLS)
@pytest.mark.parametrize("answer", ['{"a": 1}', "[1] b", "a <tool_call> b", "<|python_tag|> b"])
def test_without_tools_text_comes_as_it_is_written(syntax: Syntax, answer: str) -> None:
    lm = in_syntax(syntax, answer)
    assert list(lm.stream_chat(ASK, temperature=0)) == list(answer)
    stream = lm.stream_chat(ASK, TOOLBOX, tool_choice="none", constrain_tools=False, temperature=0)
    assert list(stream) == list(answer)


@pytest.mark.parametrize("control", [CONTROL, PLAIN])
@pytest.mark.parametrize("cut", [10, 60, 78, 100])
def test_an_answer_that_is_cut_off_keeps_no_call(control: Any, cut: int) -> None:
    notes = "".join(
        f'<tool_call>{{"name": "add_note", "arguments": {{"text": "{text}"}}}}</tool_call>'
        for text in ("milk", "eggs")
    )
    toolbox = Toolbox.load("builtin:notes")
    events: list[LoopEvent] = []
    lm = saying(f"So: {notes}", "Done.", control=control)
    new = run_tools(lm, ASK, toolbox, temperature=0, max_tokens=cut, on_event=events.append)
    assert new == [{"role": "assistant", "content": "So:"}]
    assert toolbox.run("list_notes", {}) == "[]"
    assert "".join(event.text for event in events) == "So: "
    assert events[-1].generation is not None
    assert events[-1].generation.finish_reason == "length"


@pytest.mark.parametrize("cut", [3, 20, 55])
def test_a_bare_call_that_is_cut_off_is_not_shown(cut: int) -> None:
    lm = in_syntax("llama3", CALLS["llama3"])
    seen: list[LoopEvent] = []
    new = run_tools(lm, ASK, TOOLBOX, temperature=0, max_tokens=cut, on_event=seen.append)
    assert new == [{"role": "assistant", "content": ""}]
    assert "".join(event.text for event in seen) == ""
    lm = in_syntax("llama3", '{"answer": 3}')
    free = {"temperature": 0, "max_tokens": 9, "constrain_tools": False}
    assert run_tools(lm, ASK, TOOLBOX, **free)[0]["content"] == '{"answer"'  # type: ignore[arg-type]


@pytest.mark.parametrize("control", [CONTROL, PLAIN])
def test_text_after_a_free_call_is_shown(control: Any) -> None:
    lm = saying(f"Well, {MULTIPLY} and so on", control=control)
    stream = lm.stream_chat(ASK, TOOLBOX, temperature=0, constrain_tools=False)
    assert "".join(stream) == "Well, \nand so on"
    assert stream.generation is not None
    assert stream.generation.message is not None
    assert stream.generation.message["content"] == "Well,\nand so on"


def big() -> str:
    """Big."""
    return "x" * 1800


BIG = '<tool_call>{"name": "big", "arguments": {}}</tool_call>'


@pytest.mark.parametrize("overflow", ["drop-oldest-turn", "stop"])
def test_results_that_leave_no_room_are_errors(overflow: str) -> None:
    lm = saying(BIG * 3, "Done.")  # of 4000 tokens
    new = run_tools(lm, ASK, Toolbox([big]), temperature=0, overflow=overflow, max_tokens=None)
    contents = [message["content"] for message in new]
    assert len(contents[1]) == 1802
    for content in contents[2:4]:
        assert "has 1802 tokens: the conversation has no room left" in json.loads(content)["error"]
    assert contents[-1] == "Done."


def test_a_result_is_told_before_the_next_tool_runs() -> None:
    def stop() -> None:
        """Stop."""
        raise KeyboardInterrupt

    seen: list[LoopEvent] = []
    lm = saying(BIG + BIG.replace("big", "stop"))
    with pytest.raises(KeyboardInterrupt):
        run_tools(
            lm, ASK, Toolbox([big, stop]), temperature=0, max_tokens=None, on_event=seen.append
        )
    assert [event.message["role"] for event in seen if event.message] == ["assistant", "tool"]


def test_an_answer_holds_so_many_calls() -> None:
    call = '<tool_call>{"name": "add_note", "arguments": {"text": "n"}}</tool_call>'
    toolbox = Toolbox.load("builtin:notes")
    new = run_tools(
        saying(call * (MOST_CALLS + 2), "Done."), ASK, toolbox, temperature=0, max_tokens=None
    )
    assert toolbox.run("list_notes", {}).count("number") == MOST_CALLS
    wrong = [m["content"] for m in new if m["role"] == "tool"][MOST_CALLS:]
    assert len(wrong) == 2
    assert all(f"may hold {MOST_CALLS} calls" in content for content in wrong)


def test_the_error_of_a_broken_call_has_an_id_and_a_name() -> None:
    broken = '<tool_call>{"name": "calculator", "arguments": {"expression": }}</tool_call>'
    lm = saying(broken, "Sorry.")
    new = run_tools(lm, ASK, TOOLBOX, temperature=0, constrain_tools=False)
    assert new[1]["name"] == "calculator"
    assert new[1]["tool_call_id"].startswith("call_")


def test_parameters_of_something_else_are_refused() -> None:
    tool = {"name": "f", "parameters": {"type": "string"}}
    with pytest.raises(GenerationError, match="tool f has the parameters"):
        saying("A.").chat(ASK, [tool])

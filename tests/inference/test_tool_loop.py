"""Calling tools: the loop, what goes wrong in it, and the answer piece by piece."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from llamita.errors import GenerationError
from llamita.inference.lm import LM
from llamita.inference.tool_loop import LoopEvent, run_tools
from llamita.tokenizer.base import Tokenizer
from llamita.tools import Toolbox
from tests.inference.conftest import make_model
from tests.inference.tool_cases import TEMPLATES, byte_tokenizer, check_calls
from tests.inference.turns_backend import turns_lm

CONTROL = ("<eos>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
PLAIN = CONTROL[:3]
ASK = [{"role": "user", "content": "12*9?"}]
TOOLBOX = Toolbox.load("builtin:calculator,notes")
MULTIPLY = '<tool_call>{"name": "calculator", "arguments": {"expression": "12*9"}}</tool_call>'


def chatting(control: Any = CONTROL) -> Tokenizer:
    return byte_tokenizer(control).with_chat_template(TEMPLATES["hermes"])


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """A turn as the model says it, with the tags that are control tokens, and its end."""
    known = tokenizer.special_tokens
    ids: list[int] = []
    while text:
        tags = [tag for tag in ("<tool_call>", "</tool_call>") if tag in known and tag in text]
        if not tags:
            break
        tag = min(tags, key=text.index)
        before, _, text = text.partition(tag)
        ids += [*tokenizer.encode(before), known[tag]]
    return [*ids, *tokenizer.encode(text), known["<|im_end|>"]]


def saying(*turns: str, control: Any = CONTROL) -> LM:
    tokenizer = chatting(control)
    return turns_lm([ids_of(tokenizer, turn) for turn in turns], tokenizer)


@pytest.mark.parametrize("control", [CONTROL, PLAIN])
def test_a_call_is_run_and_its_result_answered(control: Any) -> None:
    lm = saying(MULTIPLY, "It is 108.", control=control)
    seen: list[LoopEvent] = []
    call, result, answer = run_tools(lm, ASK, TOOLBOX, on_event=seen.append, temperature=0)
    assert call["tool_calls"][0]["function"] == {
        "name": "calculator",
        "arguments": '{"expression": "12*9"}',
    }
    assert result == {
        "role": "tool",
        "tool_call_id": call["tool_calls"][0]["id"],
        "name": "calculator",
        "content": "108",
    }
    assert answer == {"role": "assistant", "content": "It is 108."}
    assert [event.message for event in seen if event.kind == "message"] == [call, result, answer]
    assert "".join(event.text for event in seen) == "It is 108."
    read = lm.tokenizer.decode(lm.engine.backend.prompts[1], skip_special_tokens=False)  # type: ignore[union-attr, attr-defined]
    assert MULTIPLY in read
    assert "<tool_response>\n108\n</tool_response>" in read


def test_calls_side_by_side_are_all_run() -> None:
    notes = "\n".join(
        f'<tool_call>{{"name": "add_note", "arguments": {{"text": "{text}"}}}}</tool_call>'
        for text in ("milk", "eggs")
    )
    toolbox = Toolbox.load("builtin:notes")
    new = run_tools(saying(notes, "Done."), ASK, toolbox, temperature=0)
    assert [message["content"] for message in new[1:3]] == ['{"number": 1}', '{"number": 2}']
    assert toolbox.run("list_notes", {}).count("number") == 2


def test_case_34_a_call_that_is_no_json_goes_back_as_an_error() -> None:
    broken = '<tool_call>{"name": "calculator", "arguments": {"expression": }}</tool_call>'
    lm = saying(broken, MULTIPLY, "It is 108.")
    new = run_tools(lm, ASK, TOOLBOX, constrain_tools=False, temperature=0)
    assert new[0] == {"role": "assistant", "content": broken}
    assert "no valid JSON" in json.loads(new[1]["content"])["error"]
    assert new[-1]["content"] == "It is 108."


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ('{"name": "sub", "arguments": {}}', "there is no tool 'sub'"),
        ('{"name": "calculator", "arguments": {"x": 1}}', "'expression' is a required property"),
        ('{"name": "calculator", "arguments": {"expression": "1/0"}}', "division by zero"),
        ('{"name": "calculator", "arguments": 3}', '"arguments": an object'),
        ('{"name": "calculator"}', '"arguments": an object'),
    ],
)
def test_a_wrong_call_gets_an_error_and_the_model_goes_on(call: str, complaint: str) -> None:
    lm = saying(f"<tool_call>{call}</tool_call>", "Sorry.")
    new = run_tools(lm, ASK, TOOLBOX, constrain_tools=False, temperature=0)
    assert [message["role"] for message in new] == ["assistant", "tool", "assistant"]
    errors = json.loads(new[1]["content"])["error"]
    assert complaint in errors or "required property" in errors
    assert new[-1]["content"] == "Sorry."


def test_a_call_that_is_not_allowed_is_not_run() -> None:
    toolbox = Toolbox.load("builtin:notes")
    asked: list[Any] = []

    def allow(name: str, arguments: Any) -> bool:
        asked.append((name, arguments))
        return False

    call = '<tool_call>{"name": "add_note", "arguments": {"text": "milk"}}</tool_call>'
    new = run_tools(saying(call, "Well."), ASK, toolbox, allow=allow, temperature=0)
    assert asked == [("add_note", {"text": "milk"})]
    assert "not allow" in new[1]["content"]
    assert toolbox.run("list_notes", {}) == "[]"


def test_steps_are_limited_and_the_last_answer_is_text() -> None:
    lm = saying(MULTIPLY)
    seen: list[LoopEvent] = []
    new = run_tools(
        lm, ASK, TOOLBOX, max_steps=2, on_event=seen.append, temperature=0, max_tokens=100
    )
    assert [message["role"] for message in new] == [*["assistant", "tool"] * 2, "assistant"]
    assert "tool_calls" not in new[-1]
    assert [event.kind for event in seen if event.kind != "message"].count("limit") == 1
    assert "tool_calls" not in run_tools(lm, ASK, TOOLBOX, max_steps=0, max_tokens=100)[-1]
    with pytest.raises(GenerationError, match="max_steps is -1"):
        run_tools(lm, ASK, TOOLBOX, max_steps=-1)


def test_a_choice_is_for_the_first_answer() -> None:
    lm = saying("No.", "It is 108.")  # the constraint writes the call
    forced = {"type": "function", "function": {"name": "list_notes"}}
    new = run_tools(lm, ASK, TOOLBOX, tool_choice=forced, temperature=0, max_tokens=200)
    assert new[0]["tool_calls"][0]["function"]["name"] == "list_notes"
    assert new[1]["content"] == "[]"
    assert new[2]["content"] == "It is 108."


def test_an_answer_that_is_cut_off_is_the_last() -> None:
    new = run_tools(saying(MULTIPLY), ASK, TOOLBOX, temperature=0, max_tokens=20)
    assert len(new) == 1
    assert "tool_calls" not in new[0]


def test_without_tools_there_is_one_answer() -> None:
    new = run_tools(saying("Hello."), ASK, Toolbox(), temperature=0)
    assert new == [{"role": "assistant", "content": "Hello."}]


@pytest.mark.parametrize("control", [CONTROL, PLAIN])
@pytest.mark.parametrize(
    ("turn", "shown"),
    [
        ("Hello <b>.", "Hello <b>."),
        (f"Let me see. {MULTIPLY}", "Let me see. "),
        (MULTIPLY, ""),
        ("a <tool_call>é{", "a <tool_call>é{"),
        ("a <tool", "a <tool"),
    ],
)
def test_a_stream_gives_the_text_before_calls(control: Any, turn: str, shown: str) -> None:
    lm = saying(turn, control=control)
    stream = lm.stream_chat(ASK, TOOLBOX, temperature=0, constrain_tools=False)
    pieces = list(stream)
    if control == CONTROL and "<tool_call>" in shown:
        shown = shown.replace("<tool_call>", "")  # a control token is no text
    assert "".join(pieces) == stream.text == shown
    assert stream.generation is not None
    assert stream.generation == lm.chat(ASK, TOOLBOX, temperature=0, constrain_tools=False)


def test_a_stream_that_is_closed_frees_its_place() -> None:
    lm = saying("Hello there, this is long.")
    stream = lm.stream_chat(ASK, temperature=0)
    next(stream)
    stream.close()
    assert stream.generation is None
    assert not lm.engine.has_work
    with pytest.raises(GenerationError, match="2 conversations"):
        lm.stream_chat([ASK, ASK])


@pytest.fixture(scope="module")
def random_lm() -> LM:
    tokenizer = chatting()
    torch.manual_seed(1)
    return LM(make_model(vocab_size=tokenizer.vocab_size, max_position_embeddings=4000), tokenizer)


@pytest.mark.parametrize("choice", ["required", "auto", "none"])
def test_case_34_a_random_model_calls_validly(random_lm: LM, choice: str) -> None:
    chats = [[{"role": "user", "content": str(number)}] for number in range(4)]
    results = random_lm.chat(chats, TOOLBOX, tool_choice=choice, max_tokens=150, seed=3)
    for result in results:
        assert result.message is not None
        check_calls(result.message, TOOLBOX.schemas)
        if choice == "required" and result.finish_reason == "stop":
            assert result.tool_calls
        if choice == "none":
            assert not result.tool_calls


def test_text_is_what_it_would_be_without_the_constraint(random_lm: LM) -> None:
    settings: dict[str, Any] = {"max_tokens": 40, "seed": 5}
    free = random_lm.chat(ASK, TOOLBOX, constrain_tools=False, **settings)
    held = random_lm.chat(ASK, TOOLBOX, **settings)
    assert "<tool_call>" not in (free.message or {})["content"]
    assert held.token_ids == free.token_ids


def test_each_conversation_may_have_tools_of_its_own() -> None:
    tokenizer = chatting()
    lm = LM(make_model(vocab_size=tokenizer.vocab_size, max_position_embeddings=4000), tokenizer)
    boxes = [Toolbox.load("builtin:notes"), [Toolbox.load("builtin:units")["convert_units"]]]
    results = lm.chat([ASK, ASK], boxes, tool_choice="required", max_tokens=300, seed=1)
    alone = [lm.chat(ASK, box, tool_choice="required", max_tokens=300, seed=1) for box in boxes]
    assert results == alone
    with pytest.raises(GenerationError, match="2 lists of tools and 1"):
        lm.chat(ASK, boxes)


def test_what_cannot_go_together_is_refused(random_lm: LM) -> None:
    with pytest.raises(GenerationError, match="schema is given, and tools"):
        random_lm.chat(ASK, TOOLBOX, schema=True)
    with pytest.raises(GenerationError, match="stop is"):
        random_lm.chat(ASK, TOOLBOX, stop="x", tool_choice="required")
    with pytest.raises(GenerationError, match="no tools"):
        random_lm.chat(ASK, tool_choice="required")
    with pytest.raises(GenerationError, match="constrain_tools is 1"):
        random_lm.chat(ASK, constrain_tools=1)
    answer = random_lm.chat(ASK, TOOLBOX, regex="yes|no", tool_choice="none")
    assert answer.text in ("yes", "no")

"""Constrained tool calls: valid by construction, and text that stays as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamita.errors import GenerationError
from llamita.inference.constraint_tools import ToolConstraint
from llamita.inference.tool_rules import ToolRules
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat_tools import Syntax, format_tool_call
from tests.inference.constraint_cases import KINDS
from tests.inference.tool_cases import (
    TOOL_KINDS,
    TOOLS,
    chat_of,
    check_calls,
    rules_of,
    say,
    tool_tokenizer,
)

SYNTAXES: list[Syntax] = ["hermes", "llama3", "json"]
OPENINGS = {
    "hermes": ["Well: <tool_call>", "<tool_call>", "<tool_ca"],
    "llama3": ["{", "Well: <|python_tag|>", " {"],
    "json": ["[{", "{", " [ {"],
}
CHOICES: list[Any] = [
    "auto",
    "required",
    "none",
    {"type": "function", "function": {"name": "now"}},
]


def stops_of(tokenizer: Tokenizer) -> list[int]:
    """One token that ends a turn, as chats have it; kinds without any give up one of theirs."""
    known = tokenizer.special_tokens
    stop = known.get("<|im_end|>", tokenizer.eos_token_id)
    return [max(known.values()) if stop is None else stop]


def tag(tokenizer: Tokenizer, name: str) -> list[int]:
    known = tokenizer.special_tokens
    return [known[name]] if name in known else tokenizer.encode(name)


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of an opening, with control tokens where the model has them."""
    for name in ("<tool_call>", "<|python_tag|>"):
        if name in text and name in tokenizer.special_tokens:
            before, _, after = text.partition(name)
            middle = tokenizer.special_tokens[name]
            return [*tokenizer.encode(before), middle, *tokenizer.encode(after)]
    return tokenizer.encode(text)


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from([*KINDS, *TOOL_KINDS, *TOOL_KINDS]),
    syntax=st.sampled_from(SYNTAXES),
    choice=st.sampled_from(CHOICES),
    parallel=st.booleans(),
    opening=st.integers(-2, 2),
    seed=st.integers(0, 2**32),
)
def test_case_34_whatever_the_model_says_its_calls_are_valid(
    kind: str, syntax: Syntax, choice: Any, parallel: bool, opening: int, seed: int
) -> None:
    tokenizer = tool_tokenizer(kind)
    chat = chat_of(syntax, tokenizer)
    rules = rules_of(syntax, tool_choice=choice, parallel_tool_calls=parallel)
    constraint = ToolConstraint(rules, tokenizer, stops_of(tokenizer))
    begins = opening >= 0 and choice == "auto"
    likely = ids_of(tokenizer, OPENINGS[syntax][opening]) if begins else []
    size = tokenizer.vocab_size
    ids, reason = say(constraint, seed, size=size, likely=likely)
    message = chat.parse(chat.answer_text(ids))
    check_calls(message)
    calls = message.get("tool_calls", [])
    if choice == "none":
        assert not calls
        assert chat.broken_call(chat.answer_text(ids)) is None
    elif choice != "auto" and reason == "stop":
        assert calls
        assert message["content"] == ""
    if reason == "stop" and begins and ids[: len(likely)] == likely and opening != 2:
        assert calls
    if reason == "stop":
        assert chat.broken_call(chat.answer_text(ids)) is None
    if not parallel:
        assert len(calls) <= 1
    if isinstance(choice, dict):
        assert [call["function"]["name"] for call in calls] in ([], ["now"])


@pytest.mark.parametrize("kind", ["control", "crossing", "byte-level", "spm"])
@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_calls_as_models_are_taught_them_can_be_written(
    kind: str, syntax: Syntax, choice: str
) -> None:
    tokenizer = tool_tokenizer(kind)
    chat = chat_of(syntax, tokenizer)
    calls: list[dict[str, Any]] = [
        {"name": "convert", "arguments": {"value": -2.5, "unit": "C", "tags": ["</tool_call>"]}},
        {"name": 'note "it"', "arguments": {"text": 'a\n"é', "sum": "1+2"}},
        {"name": "now", "arguments": {}},
    ]
    ids: list[int] = []
    for place, call in enumerate(calls):
        body = format_tool_call(call, "llama3" if syntax == "llama3" else "json")
        ids += tokenizer.encode("\n") if place else []
        if syntax == "hermes":
            ids += [*tag(tokenizer, "<tool_call>"), *tokenizer.encode(body)]
            ids += tag(tokenizer, "</tool_call>")
        else:
            ids += tokenizer.encode(body)
    stops = stops_of(tokenizer)
    matcher = ToolConstraint(rules_of(syntax, tool_choice=choice), tokenizer, stops).start([0])
    for token_id in [*ids, *stops]:
        mask = matcher.mask()
        assert mask is None or mask[token_id // 32] >> (token_id % 32) & 1, tokenizer.decode(ids)
        assert not matcher.is_complete
        matcher.accept(token_id)
    assert matcher.is_complete
    message = chat.parse(chat.answer_text(ids))
    made = [call["function"] for call in message["tool_calls"]]
    assert [(f["name"], json.loads(f["arguments"])) for f in made] == [
        (call["name"], call["arguments"]) for call in calls
    ]


@pytest.mark.parametrize("kind", [*KINDS, *TOOL_KINDS])
def test_text_without_a_call_is_free(kind: str) -> None:
    tokenizer = tool_tokenizer(kind)
    for syntax in SYNTAXES:
        constraint = ToolConstraint(rules_of(syntax), tokenizer, stops_of(tokenizer))
        text = "It is 5 < 6, {a}, [1], <tool>, and </tool_call>."
        matcher = constraint.start([0])
        for token_id in tokenizer.encode(text):
            mask = matcher.mask()
            assert mask is None or mask[token_id // 32] >> (token_id % 32) & 1
            matcher.accept(token_id)
        mask = matcher.mask()
        opened = constraint.free_mask(constraint.signs.start)
        for stop in stops_of(tokenizer):
            assert mask is None or mask[stop // 32] >> (stop % 32) & 1
            assert opened is None or opened[stop // 32] >> (stop % 32) & 1


def test_a_token_that_begins_a_call_wrongly_cannot_be_drawn() -> None:
    tokenizer = tool_tokenizer("crossing")
    stops = stops_of(tokenizer)
    ids = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}

    def can_begin(syntax: Syntax, tokens: list[bytes], **choice: Any) -> bool:
        matcher = ToolConstraint(rules_of(syntax, **choice), tokenizer, stops).start([0])
        for token in tokens:
            mask = matcher.mask()
            if mask is not None and not mask[ids[token] // 32] >> (ids[token] % 32) & 1:
                return False
            matcher.accept(ids[token])
        return True

    assert can_begin("hermes", [b"<tool_call>{"])
    assert can_begin("hermes", [b"<tool_cal", b'l>{"na'])
    assert not can_begin("hermes", [b"<tool_call", b'>"'])
    assert can_begin("hermes", [b"<tool_cal", b'>"'])
    assert not can_begin("hermes", [b"<tool_call>{"], tool_choice="none")
    assert can_begin("json", [b'[{"na'])
    assert not can_begin("json", [b"[", b"{", b"{"])
    assert not can_begin("json", [b" {"], tool_choice="none")
    assert can_begin("json", [b"a", b" {"], tool_choice="none")


def test_arguments_are_those_that_the_schema_names() -> None:
    tokenizer = tool_tokenizer("control")
    open_tool = {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}
    constraint = ToolConstraint(
        rules_of("json", [open_tool], tool_choice="required"), tokenizer, []
    )
    matcher = constraint.start([0])
    for token_id in b'{"name": "f", "arguments": {"':
        assert matcher.mask() is not None
        matcher.accept(token_id)
    mask = matcher.mask()
    assert mask is not None
    assert [i for i in range(tokenizer.vocab_size) if mask[i // 32] >> (i % 32) & 1] == [ord("a")]


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        ("any", "tool_choice is 'any'"),
        (3, "tool_choice is 3"),
        ({"type": "function", "function": {"name": "g"}}, "asks for the tool 'g'"),
        ({"type": "function"}, "tool_choice is"),
    ],
)
def test_a_wrong_choice_is_named(choice: Any, complaint: str) -> None:
    with pytest.raises(GenerationError, match=complaint):
        rules_of("hermes", tool_choice=choice)
    with pytest.raises(GenerationError, match="no tools"):
        ToolRules.of([], "hermes", "required")


def test_a_schema_that_cannot_be_enforced_names_the_tool_and_the_way_out() -> None:
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}
    with pytest.raises(GenerationError, match=r"the tool f: .*'not'") as raised:
        ToolConstraint(rules_of("hermes", [tool]), tool_tokenizer("control"), [])
    assert "constrain_tools=False" in str(raised.value.hint)


def test_a_vocabulary_that_cannot_write_a_call_says_so() -> None:
    tool = {"name": "f\u0561", "parameters": {}}
    with pytest.raises(GenerationError, match="cannot write 'ա'"):
        ToolConstraint(rules_of("json", [tool]), tool_tokenizer("armgpt"), [])


def test_rules_are_the_same_for_the_same_tools() -> None:
    assert rules_of("hermes") == rules_of("hermes", [t.get("function", t) for t in TOOLS])
    assert hash(rules_of("hermes")) == hash(rules_of("hermes"))


@pytest.mark.parametrize(
    ("tools", "complaint"),
    [
        ([{"name": "f"}, {"name": "f"}], "the tool f stands twice"),
        ([{"name": "f", "parameters": [1]}], r"the tool f has the parameters \[1\]"),
    ],
)
def test_tools_that_cannot_be_told_apart_are_refused(tools: Any, complaint: str) -> None:
    with pytest.raises(GenerationError, match=complaint):
        rules_of("hermes", tools)


def test_a_tool_without_parameters_takes_none() -> None:
    for tool in ({"name": "f"}, {"name": "f", "parameters": None}):
        assert json.loads(rules_of("hermes", [tool]).tools) == [
            ["f", {"type": "object", "properties": {}}]
        ]

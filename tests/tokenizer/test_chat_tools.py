"""Tool calls as text and as objects, and messages that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import TokenizerError
from llamita.tokenizer.chat import ChatFormat
from llamita.tokenizer.chat_tools import (
    Syntax,
    broken_call,
    format_tool_call,
    parse_tool_calls,
    reasoning_end,
)
from llamita.tokenizer.hf import HFTokenizer
from tests.tokenizer import chat_cases as cases
from tests.tokenizer.chat_cases import PLAIN, call

SYNTAXES: list[Syntax] = ["hermes", "llama3", "json"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10) | st.sampled_from(
    ["</tool_call>", "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", '{"name"']
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.lists(st.tuples(TEXT, st.dictionaries(TEXT, VALUES, max_size=3)), min_size=1, max_size=3)


def functions(calls: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]


@given(calls=CALLS, syntax=st.sampled_from(SYNTAXES), separator=st.sampled_from(["\n", "", "\n\n"]))
def test_calls_come_back_as_they_were(
    calls: list[tuple[str, Any]], syntax: Syntax, separator: str
) -> None:
    text = separator.join(format_tool_call(call(n, **a) if "name" not in a else {
        "function": {"name": n, "arguments": a}}, syntax) for n, a in calls)  # fmt: skip
    content, parsed = parse_tool_calls(text, syntax)
    assert functions(parsed) == calls
    assert content == ""
    assert all(entry["type"] == "function" for entry in parsed)
    assert len({entry["id"] for entry in parsed}) == len(calls)


@given(text=st.text() | st.lists(st.sampled_from(
    ["<tool_call>", "</tool_call>", '{"name": "f", ', '"arguments": {}', '"parameters": 3', "}",
     "[", "]", "{", "NaN", '"\\ud800"', "<|python_tag|>", ";", "1" * 5000, "[" * 2000]
)).map("".join), syntax=st.sampled_from(SYNTAXES))  # fmt: skip
def test_case_34_no_text_makes_parsing_fail(text: str, syntax: Syntax) -> None:
    content, calls = parse_tool_calls(text, syntax)
    assert calls or content == text
    assert all(isinstance(arguments, dict) for _, arguments in functions(calls))


@pytest.mark.parametrize(
    ("template", "text", "content", "expected"),
    [
        (
            cases.QWEN,
            'Sure.\n<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>\n'
            '<tool_call>\n{"name": "b", "arguments": {}}\n</tool_call>',
            "Sure.",
            [("a", {"x": 1}), ("b", {})],
        ),
        (cases.QWEN, '<tool_call>{"name": "a", "arguments": {}}', "", [("a", {})]),
        (cases.QWEN, '<tool_call>{"name": "a", ', '<tool_call>{"name": "a", ', []),
        (cases.LLAMA3, '{"name": "a", "parameters": {"x": "y"}}', "", [("a", {"x": "y"})]),
        (
            cases.LLAMA3,
            '<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}',
            "",
            [("a", {}), ("b", {})],
        ),
        (cases.LLAMA3, '{"name": "a"}', '{"name": "a"}', []),
        (cases.LLAMA3, 'As JSON: {"a": 1}', 'As JSON: {"a": 1}', []),
        (
            "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}",
            '[{"name": "a", "arguments": "{\\"x\\": 1}"}]',
            "",
            [("a", {"x": 1})],
        ),
        (cases.CHATML, '{"name": "a", "arguments": {}}', '{"name": "a", "arguments": {}}', []),
    ],
)
def test_the_template_tells_how_calls_are_written(
    template: str, text: str, content: str, expected: list[Any], chat_tokenizer: HFTokenizer
) -> None:
    message = ChatFormat.of(chat_tokenizer.with_chat_template(template)).parse(text)
    assert message["role"] == "assistant"
    assert message["content"] == content
    assert functions(message.get("tool_calls", [])) == expected


def test_a_parsed_answer_is_rendered_as_it_was(chat_tokenizer: HFTokenizer) -> None:
    for name in ("chatml-tools", "llama3"):
        chat = ChatFormat.built_in(name, chat_tokenizer)
        text = chat.format_tool_call(call(city="Երևան", days=[1, 2]))
        message = chat.parse(text)
        assert f"{text}<|" in chat.render([PLAIN[0], message])
    with pytest.raises(TokenizerError, match="no place"):
        ChatFormat.built_in("armgpt", chat_tokenizer).format_tool_call(call())


def test_reasoning_is_told_from_the_answer(chat_tokenizer: HFTokenizer) -> None:
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(cases.QWEN_THINKING))
    message = chat.parse("<think>\nHm.\n</think>\n\nYes.")
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")
    assert chat.render([PLAIN[0], message]).endswith("<think>\nHm.\n</think>\n\nYes.<|im_end|>\n")


def test_answers_show_the_tokens_that_structure_them(chat_tokenizer: HFTokenizer) -> None:
    chat = ChatFormat.built_in("chatml-tools", chat_tokenizer)
    special = chat_tokenizer.special_tokens
    ids = [special["<tool_call>"], *chat_tokenizer.encode("é"), special["<|im_end|>"]]
    assert chat.answer_text(ids) == "<tool_call>é"


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("hello", "the messages are"),
        ([], "empty"),
        (["hello"], "message 0"),
        ([{"role": "user"}], "no content"),
        ([{"role": "alien", "content": "x"}], '"alien"'),
        ([{"role": ["user"], "content": "x"}], "role"),
        ([{"content": "x"}], "role null"),
        ([{"role": "user", "content": 3}], "content of message 0 is 3"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "image_url"),
        ([{"role": "user", "content": ["text"]}], '"text"'),
        ([{"role": "user", "content": "\ud800"}], "lone surrogate"),
        ([{"role": "user", "content": "x", "tool_calls": []}], "its role is user"),
        ([{"role": "assistant", "tool_calls": [{"function": {}}]}], "no name"),
        ([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{"}]}], "no JSON"),
        ([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": [1]}]}], r"\[1\]"),
        ([{"role": "user", "content": "x", "extra": object()}], "object"),
    ],
)
def test_wrong_messages_are_named(messages: Any, words: str, chat_tokenizer: HFTokenizer) -> None:
    chat = ChatFormat.built_in("chatml-tools", chat_tokenizer)
    with pytest.raises(TokenizerError, match=words):
        chat.encode(messages)


@pytest.mark.parametrize(
    "tools", ["f", {"name": "f"}, ["f"], [{"type": "function"}], [{"name": 3}]]
)
def test_wrong_tools_are_named(tools: Any, chat_tokenizer: HFTokenizer) -> None:
    chat = ChatFormat.built_in("chatml-tools", chat_tokenizer)
    with pytest.raises(TokenizerError, match="tool"):
        chat.render(PLAIN, tools)


def test_arguments_may_be_json_text_or_an_object(chat_tokenizer: HFTokenizer) -> None:
    chat = ChatFormat.built_in("chatml-tools", chat_tokenizer)

    def rendered(**function: Any) -> str:
        calls = [{"id": "1", "type": "function", "function": {"name": "f", **function}}]
        return chat.render([PLAIN[0], {"role": "assistant", "content": None, "tool_calls": calls}])

    assert rendered(arguments={"a": 1}) == rendered(arguments='{"a":1}')
    assert '{"name": "f", "arguments": {"a": 1}}' in rendered(arguments='{"a":1}')


@pytest.mark.parametrize(
    ("syntax", "text", "complaint"),
    [
        ("hermes", '<tool_call>{"name": "f", </tool_call>', "no valid JSON"),
        ("hermes", 'So: <tool_call>{"name": "f"}</tool_call>', '"arguments": an object'),
        ("hermes", "<tool_call>", "no valid JSON"),
        ("hermes", '{"name": "f", ', None),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}</tool_call>', None),
        ("hermes", "Hello.", None),
        ("llama3", '{"name": "f", "parameters": {', "no valid JSON"),
        ("llama3", '{"name": "f", "parameters": 3}', '"parameters": an object'),
        ("llama3", '<|python_tag|>{"a": 1}', '"parameters": an object'),
        ("llama3", '{"answer": 3}', None),
        ("llama3", "[1]", None),
        ("json", '[{"name": "f", "arguments": }]', "no valid JSON"),
        ("json", "[TOOL_CALLS] f", "no valid JSON"),
    ],
)
def test_case_34_a_broken_call_says_what_is_wrong(
    syntax: Syntax, text: str, complaint: str | None
) -> None:
    said = broken_call(text, syntax)
    assert said is None if complaint is None else said is not None and complaint in said


def test_what_follows_a_sign_may_hold_signs() -> None:
    text = 'Look <|python_tag|>{"name": "f", "parameters": {"a": "[TOOL_CALLS]"}}'
    content, calls = parse_tool_calls(text, "llama3")
    assert content == "Look"
    assert functions(calls) == [("f", {"a": "[TOOL_CALLS]"})]


HELD = '{"name": "f", "arguments": {"a": "</think>"}}'


@pytest.mark.parametrize(
    ("syntax", "text", "answer"),
    [
        (None, "a</think>b</think>c", "c"),
        ("hermes", f"a</think>b<tool_call>{HELD}</tool_call>", f"b<tool_call>{HELD}</tool_call>"),
        ("hermes", f"<tool_call>{HELD}</tool_call>", None),
        ("hermes", f"a<tool_call>{HELD}</tool_call></think>b", "b"),
        ("json", f"a</think>{HELD}", HELD),
        ("json", HELD, None),
        ("json", "a</think>b</think>c", "c"),
        ("json", "a", None),
    ],
)
def test_a_tag_in_a_call_ends_no_reasoning(
    syntax: Syntax | None, text: str, answer: str | None
) -> None:
    end = reasoning_end(text, syntax)
    assert (None if end is None else text[end:]) == answer

"""Tools as signatures: short, with nothing of a schema lost, and alike wherever templates run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.gguf_vocabulary import to_vocabulary
from llamita.tokenizer.hf import HFTokenizer
from tests.tokenizer.chat_cases import TOOLS, WEATHER
from tests.tokenizer.llama_cpp import ask, llama_cpp_address, write_vocabulary

TEMPLATE = BUILT_IN["chatml-signatures"].template
CITY = {"type": "string", "description": 'Where,\nor "near"'}
NESTED = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}


def tool(parameters: Any = None, description: str | None = "Does.", **more: Any) -> dict[str, Any]:
    function: dict[str, Any] = {"name": "f"}
    if description is not None:
        function["description"] = description
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": {**function, **more}}


def taking(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return tool({"type": "object", "properties": properties, "required": list(required)})


CASES: list[tuple[dict[str, Any], str]] = [
    (tool(), "f(): Does."),
    (tool(description=None), "f()"),
    (tool({}), "f(): Does."),
    (tool({"type": "object"}), "f(): Does."),
    (tool({"type": "object", "properties": {}}), "f(): Does."),
    (tool({"properties": {"a": {"type": "number"}}}), "f(a?: number): Does."),
    (
        taking(("a",), a={"type": "string"}, b={"type": "integer"}),
        "f(a: string, b?: integer): Does.",
    ),
    (
        taking(("a",), a={"type": "string", "enum": ["km", 'an "é"']}),
        'f(a: "km"|"an \\"é\\""): Does.',
    ),
    (
        taking(("a",), a={"type": "integer", "enum": [1, 2]}),
        'f(a: {"type": "integer", "enum": [1, 2]}): Does.',
    ),
    (taking(a={"enum": ["x"]}), 'f(a?: {"enum": ["x"]}): Does.'),
    (taking(a={"type": ["string", "null"]}), 'f(a?: {"type": ["string", "null"]}): Does.'),
    (taking(a={}), "f(a?: {}): Does."),
    (
        taking(("a",), a=CITY),
        'f(a: {"type": "string", "description": "Where,\\nor \\"near\\""}): Does.',
    ),
    (
        taking(("a",), a={"type": "array", "items": {"type": "number"}}, b={"type": "array"}),
        'f(a: {"type": "array", "items": {"type": "number"}}, b?: array): Does.',
    ),
    (taking(a=NESTED), f"f(a?: {json.dumps(NESTED)}): Does."),
    (taking(("b", "c"), a={"type": "string"}), "f(a?: string, b, c): Does."),
    (taking(("b", "c")), "f(b, c): Does."),
    (
        tool({"type": "object", "properties": {"a": {"$ref": "#/$defs/u"}}, "$defs": {"u": {}}}),
        'f(a?: {"$ref": "#/$defs/u"}; "$defs": {"u": {}}): Does.',
    ),
    (tool({"type": "object", "additionalProperties": False}), "f(): Does."),
    (
        tool({"type": ["object", "null"], "additionalProperties": {}}),
        'f(; "type": ["object", "null"]; "additionalProperties": {}): Does.',
    ),
    (tool(description="One.\n\nf(): Two.\n  Three."), "f(): One.\n  \n  f(): Two.\n    Three."),
]
# Schemas that llama.cpp refuses, and what it takes out of a request.
ODD: list[tuple[dict[str, Any], str]] = [
    (tool({"type": "object", "properties": None, "required": None}), "f(): Does."),
    (
        taking(("a",), a={"type": "string", "enum": []}),
        'f(a: {"type": "string", "enum": []}): Does.',
    ),
    (taking(a={}, b=True), "f(a?: {}, b?: true): Does."),
    (
        tool({"properties": {"a": {"type": "string"}}, "required": True}),
        'f(a?: string; "required": true): Does.',
    ),
    (tool({"properties": {"a": {}}, "required": "a"}), 'f(a?: {}; "required": "a"): Does.'),
    (tool({"required": {"a": 1}}), 'f(; "required": {"a": 1}): Does.'),
    (tool(returns={"type": "number"}), 'f(); "returns": {"type": "number"}: Does.'),
]


def written(text: str) -> str:
    return f"<|im_start|>system\nTools:\n{text}<|im_end|>\n<|im_start|>user\nHi.<|im_end|>"


HI = [{"role": "user", "content": "Hi."}]


@pytest.mark.parametrize(("described", "text"), CASES + ODD)
def test_a_tool_is_a_signature_in_both_of_its_forms(
    described: dict[str, Any], text: str, chat_tokenizer: HFTokenizer
) -> None:
    chat = ChatFormat.built_in("chatml-signatures", chat_tokenizer)
    assert chat.render(HI, [described]) == written(text)
    assert chat.render(HI, [described["function"]]) == written(text)
    assert chat.render(HI, [{"type": "function", **described["function"]}]) == written(text)


def test_a_chat_is_else_as_hermes_has_it(chat_tokenizer: HFTokenizer) -> None:
    ours = ChatFormat.built_in("chatml-signatures", chat_tokenizer)
    hermes = ChatFormat.built_in("chatml-tools", chat_tokenizer)
    assert ours.render(TOOLS) == hermes.render(TOOLS)
    messages = [{"role": "system", "content": "S"}, *TOOLS]
    weather = "weather(city?: string): The weather <now>, 'é' & more"
    _, _, after = hermes.render(messages, [WEATHER], True).partition("<|im_end|>")
    assert ours.render(messages, [WEATHER], True) == (
        f"<|im_start|>system\nS\n\nTools:\n{weather}<|im_end|>{after}"
    )


@pytest.mark.parametrize(("described", "text"), CASES + ODD)
def test_transformers_writes_the_same(
    described: dict[str, Any], text: str, peer: PreTrainedTokenizerBase
) -> None:
    theirs = peer.apply_chat_template(HI, tools=[described], chat_template=TEMPLATE, tokenize=False)
    assert theirs == written(text)


@pytest.fixture(scope="module")
def server(chat_tokenizer: HFTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("xllamacpp", reason="llama.cpp is the peer here")
    path = tmp_path_factory.mktemp("signatures") / "model.gguf"
    vocabulary = to_vocabulary(chat_tokenizer.with_chat_template(TEMPLATE))
    with llama_cpp_address(write_vocabulary(vocabulary, path), jinja=True) as address:
        yield address


@pytest.mark.parametrize(("described", "text"), CASES)
def test_llama_cpp_writes_the_same(described: dict[str, Any], text: str, server: str) -> None:
    request = {"messages": HI, "tools": [described], "add_generation_prompt": False}
    assert ask(server, "/apply-template", **request)["prompt"] == written(text)


def test_llama_cpp_writes_a_whole_chat_alike(server: str, chat_tokenizer: HFTokenizer) -> None:
    chat = ChatFormat.built_in("chatml-signatures", chat_tokenizer)
    messages = [{"role": "system", "content": "S"}, *TOOLS[:3]]
    tools = [WEATHER, *(described for described, _ in CASES)]
    called = {**TOOLS[1], "tool_calls": [as_text(made) for made in TOOLS[1]["tool_calls"]]}
    request = {"messages": [*messages[:2], called, *messages[3:]], "tools": tools}
    prompt = ask(server, "/apply-template", **request, add_generation_prompt=True)["prompt"]
    assert prompt == chat.render(messages, tools, True)


def as_text(call: dict[str, Any]) -> dict[str, Any]:
    """A call with its arguments as JSON text, as OpenAI's API has them."""
    function = call["function"]
    return {
        "type": "function",
        "id": "call_0",
        "function": {**function, "arguments": json.dumps(function["arguments"])},
    }


def test_calls_are_hermes_and_what_ends_a_turn_is_found(chat_tokenizer: HFTokenizer) -> None:
    chat = ChatFormat.built_in("chatml-signatures", chat_tokenizer)
    assert chat.tool_syntax == "hermes"
    assert chat.turn_end_ids == (chat_tokenizer.special_tokens["<|im_end|>"],)
    [call] = chat.parse(chat.format_tool_call(TOOLS[1]["tool_calls"][0]))["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Երևան", "unit": "°C <b>"}

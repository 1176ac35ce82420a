"""A conversation is rendered once, and what its beginnings are is told as if each were rendered."""

from __future__ import annotations

import random
from typing import Any

import pytest

from llamita.errors import TokenizerError
from llamita.tokenizer import chat_beginnings
from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.chat_beginnings import Beginnings
from llamita.tokenizer.chat_sandbox import render_template
from llamita.tokenizer.hf import HFTokenizer
from tests.fuzz.bases import TEMPLATE
from tests.inference.tool_cases import BARE
from tests.tokenizer import chat_cases as cases
from tests.tokenizer.chat_cases import WEATHER, call
from tests.tokenizer.test_chat_injection import ASCII_JSON, BORDERS
from tests.tokenizer.test_chat_shield import ASKING, GEMMA, LOOKS, MISTRAL
from tests.tokenizer.test_chat_spans import PHI

WRITE = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def looped(head: str = "", body: str = "", over: str = "messages", tail: str = PROMPT) -> str:
    """A template that appends, but for what it is given."""
    return f"{head}{{% for m in {over} %}}{WRITE}{body}{{% endfor %}}{tail}"


APPENDING = {
    **{name: entry.template for name, entry in BUILT_IN.items()},
    "SmolLM2": cases.CHATML,
    "Llama 3": cases.LLAMA3,
    "Llama 2": cases.LLAMA2,
    "Mistral": MISTRAL,
    "Gemma": GEMMA,
    "Phi": PHI,
    "fuzz": TEMPLATE,
    "from an index": looped(over="messages[1:]", head="{{ messages[0].content }}"),
    "counting": looped(body="{{ loop.index }}{{ loop.index0 }}{{ loop.cycle('a', 'b') }}"),
    "looking back": looped(
        body="{% if not loop.first %}{{ loop.previtem.role }}{{ messages[loop.index0 - 1].role }}"
        "{% endif %}"
    ),
    "namespace in the loop": looped(
        "{% set ns = namespace(n=0) %}", "{% set ns.n = ns.n + 1 %}{{ ns.n }}"
    ),
    "macro": looped("{% macro w(x) %}[{{ x.role }}]{% endmacro %}", "{{ w(m) }}"),
    "any message": looped("{% if messages %}yes{% endif %}"),
    "date": looped("{{ strftime_now('%Y') }}"),
}
OTHERS = {
    "tail of variables": looped(tail="{{ eos_token if not add_generation_prompt }}{{ tools }}"),
    "from twice": looped(over="messages[1:][1:]"),
    "bare": BARE,
    "Qwen": cases.QWEN,
    "Qwen thinking": cases.QWEN_THINKING,
    "asking": ASKING,
    "borders": BORDERS,
    "ascii": ASCII_JSON,
    **{
        f"looks {n}": f"{{% for m in messages %}}{look}{{% endfor %}}"
        for n, look in enumerate(LOOKS)
    },
    "last": looped(body="{% if loop.last %}!{% endif %}"),
    "last of users": looped(body="{% if m.role == 'user' and loop.last %}!{% endif %}"),
    "next": looped(body="{% if m.role == 'tool' %}{{ loop.nextitem.role }}{% endif %}"),
    "next by index": looped(body="{{ (messages[loop.index0 + 1] or {}).role }}"),
    "reversed index": looped(body="{{ loop.revindex if m.role == 'tool' }}"),
    "length of the loop": looped(body="{{ loop.length if m.role == 'user' }}"),
    "length": looped("{{ messages | length }}"),
    "length late": looped(body="{% if loop.index0 == 2 %}{{ messages | count }}{% endif %}"),
    "many": looped("{% if messages[3] is defined %}long{% endif %}"),
    "last message": looped("{{ messages[-1].role }}"),
    "last message by filter": looped("{{ (messages | last).role }}"),
    "first message by filter": looped("{{ (messages | first).role }}"),
    "but the last": looped("{% for m in messages[:-1] %}.{% endfor %}"),
    "last two": looped("{% for m in messages[-2:] %}.{% endfor %}", over="messages[-2:]"),
    "backwards": looped("{% for m in messages[::-1] %}{{ m.role[0] }}{% endfor %}"),
    "some": looped("{% for m in messages[:2] %}.{% endfor %}", over="messages[2:]"),
    "first pass": looped("{% for m in messages %}{{ m.role[0] }}{% endfor %}"),
    "silent first pass": looped(
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}",
        "{{ ns.n }}",
    ),
    "pass for the first": looped(
        "{% for m in messages %}{% if loop.first %}{{ m.content }}{% endif %}{% endfor %}"
    ),
    "pass for the first and others": looped(
        "{% for m in messages %}{% if loop.first %}1{% else %}2{% endif %}{% endfor %}"
    ),
    "two loops": looped(tail="{% for m in messages %}{{ m.content }}{% endfor %}"),
    "list": looped(over="messages | list"),
    "chosen": looped(over="messages | selectattr('role', 'ne', 'system')"),
    "chosen in the loop": looped(over="messages if m.role != 'system'"),
    "chosen and looking ahead": looped(over="messages if m.role != 'tool'", body="{{ loop.last }}"),
    "joined": looped(over="messages + [{'role': 'user', 'content': 'more'}]"),
    "asked for a sequence": looped("{% if messages is sequence %}yes{% endif %}"),
    "asked for its kind": looped(
        "{% if messages is iterable and messages is not mapping %}y{%endif%}"
    ),
    "asked for a method": looped("{% if messages.index is defined %}yes{% endif %}"),
    "asked for a field": looped("{% if messages.content is defined %}yes{% endif %}"),
    "a method": looped("{{ messages.count(messages[0]) }}"),
    "compared": looped("{% if messages == [] %}none{% endif %}"),
    "contained": looped("{% if messages[0] in messages %}yes{% endif %}"),
    "written": looped("{{ messages }}"),
    "written as JSON": looped("{{ messages | tojson }}"),
    "joined as a text": looped("{{ 'x' ~ messages }}"),
    "grouped": looped("{{ messages | map(attribute='role') | join }}"),
    "state in the tail": looped(
        "{% set ns = namespace(r='') %}", "{% set ns.r = m.role %}", tail="{{ ns.r }}" + PROMPT
    ),
    "set in the tail": looped(tail="{% set x = messages[0].role %}{{ x }}"),
    "last in the tail": looped(tail="{{ messages[-1].role }}" + PROMPT),
    "macro in the tail": looped(
        "{% macro w() %}{{ messages | length }}{% endmacro %}", tail="{{ w() }}"
    ),
    "refusing": looped(tail="{{ raise_exception('no') if add_generation_prompt }}"),
    "refusing what is last": looped(
        body="{{ raise_exception('no') if loop.last and m.role == 'user' }}"
    ),
    "refusing few": looped("{{ raise_exception('few') if messages | length < 3 }}"),
    "else": f"{{% for m in messages[1:] %}}{WRITE}{{% else %}}none{{% endfor %}}" + PROMPT,
    "break": looped(body="{% if m.role == 'tool' %}{% break %}{% endif %}"),
    "continue": looped(body="{% if m.role == 'user' %}{% continue %}{% endif %}."),
    "recursive": f"{{% for m in messages recursive %}}{WRITE}{{% endfor %}}" + PROMPT,
    "within a condition": "{% if messages %}" + looped(tail="") + "{% endif %}" + PROMPT,
    "within a block": "{% block b %}" + looped(tail="") + "{% endblock %}" + PROMPT,
    "filtered": "{% filter trim %}" + looped(tail="") + "{% endfilter %}" + PROMPT,
    "kept": "{% set x %}" + looped(tail="") + "{% endset %}{{ x }}" + PROMPT,
    "by a macro": "{% macro w() %}" + looped(tail="") + "{% endmacro %}{{ w() }}" + PROMPT,
    "named anew": "{% set messages = messages[1:] %}" + looped(),
    "named anew by a loop": "{% for messages in [messages] %}" + looped(tail="") + "{% endfor %}",
    "handed on": "{% set ns = namespace(m=messages) %}" + looped(over="ns.m"),
    "mixed lists": looped("{% set x = [messages, 1] %}{{ x | length }}", over="x[0]"),
    "weighed": looped("{% set x = {'m': messages} %}", over="x.m"),
    "nothing": "nothing",
    "no loop": "{{ messages[0].content }}" + PROMPT,
    "wrong": looped(body="{{ m.content.nothing.at.all }}"),
    "generation": cases.GENERATION,
}
TEXTS = [
    *(
        "",
        "Hi",
        "  12 * 9?\n",
        "<|im_end|>",
        "im_end|>",
        "Երևան 🦙",
        "<think>\nHm.\n</think>\n\nYes.",
    ),
    *('<tool_call>{"name": "weather", "arguments": {}}</tool_call>', "</think>", "<tool_response>"),
]


def conversation(generator: random.Random, longest: int = 7) -> list[dict[str, Any]]:
    """Messages of any roles: often in turns, at times in no order at all."""
    in_turns = generator.random() < 0.7
    messages = []
    if generator.random() < 0.3:
        messages.append({"role": "system", "content": generator.choice(TEXTS)})
    for index in range(generator.randrange(1, longest)):
        role = ["user", "assistant"][index % 2]
        if not in_turns:
            role = generator.choice(["user", "assistant", "assistant", "tool", "system"])
        message: dict[str, Any] = {"role": role, "content": generator.choice(TEXTS)}
        if role == "assistant" and generator.random() < 0.3:
            message["tool_calls"] = [call(city="Երևան", text=generator.choice(TEXTS))]
        if role == "assistant" and generator.random() < 0.1:
            message["reasoning_content"] = "Hm."
        if role == "assistant" and generator.random() < 0.1:
            message["weight"] = generator.choice([0, 1])
        if generator.random() < 0.1:
            message["content"] = [{"type": "text", "text": message["content"]}]
        messages.append(message)
    return messages


def tools_of(generator: random.Random) -> list[dict[str, Any]] | None:
    return generator.choice([None, None, [WEATHER], [WEATHER, WEATHER["function"]]])


def outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What is given, or what is wrong."""
    try:
        return function(*args, **kwargs)
    except TokenizerError as error:
        return type(error), error.message, error.hint


@pytest.mark.parametrize("name", [*APPENDING, *OTHERS])
def test_beginnings_are_what_the_template_renders(name: str) -> None:
    template = {**APPENDING, **OTHERS}[name]
    generator = random.Random(name)
    variables = {"bos_token": "<s>", "eos_token": "</s>"}
    for _ in range(12):
        messages = conversation(generator)
        values = {**variables, "tools": tools_of(generator), "messages": messages}
        hidden = generator.choice([{}, {"\U00100000": "<"}])

        def rendered(count: int, generation: bool) -> str:
            shown = {**values, "messages": messages[:count], "add_generation_prompt": generation}  # noqa: B023
            return render_template(template, shown, hidden=hidden)  # noqa: B023

        whole = outcome(Beginnings, template, values, hidden)
        if not isinstance(whole, Beginnings):
            assert whole == outcome(rendered, len(messages), False)
            continue
        assert whole.text == rendered(len(messages), False)
        for count in range(len(messages) + 1):
            for generation in (True, False):
                found = outcome(whole.first, count, generation)
                if isinstance(found[0], int):
                    found = whole.text[: found[0]] + found[1]
                assert found == outcome(rendered, count, generation)


@pytest.mark.parametrize("name", [*APPENDING, *OTHERS])
def test_ids_masks_and_errors_are_those_of_rendering_each_beginning(
    name: str, chat_tokenizer: HFTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = ChatFormat(chat_tokenizer, {**APPENDING, **OTHERS}[name])
    generator = random.Random(name)
    chats = []
    for _ in range(8):
        last_turn_only = generator.random() < 0.3
        chats.append((conversation(generator), tools_of(generator), last_turn_only))
    encode = chat.encode_with_spans
    quick = [outcome(encode, m, tools, last_turn_only=last) for m, tools, last in chats]
    monkeypatch.setattr(chat_beginnings, "_followed", lambda template: None)
    assert quick == [outcome(encode, m, tools, last_turn_only=last) for m, tools, last in chats]


@pytest.mark.parametrize("name", APPENDING)
def test_a_template_that_appends_renders_a_conversation_once(
    name: str, chat_tokenizer: HFTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = APPENDING[name]
    chat = ChatFormat(chat_tokenizer, template)
    wants_tools = "tools" in template and name not in ("Llama 2", "Mistral")
    system = {"role": "system", "content": "Be brief."}
    messages = [
        {"role": role, "content": f"{role} {index}"}
        for index in range(20)
        for role in ("user", "assistant")
    ]
    assert chat.turn_end_ids

    def unexpected(*_: Any, **__: Any) -> str:
        raise AssertionError("it is rendered once more")

    monkeypatch.setattr(chat_beginnings, "render_template", unexpected)
    chat.encode_with_spans(messages, [WEATHER] if wants_tools else None)
    if name not in ("armgpt", "Gemma"):  # which refuse it
        chat.encode_with_spans([system, *messages], [WEATHER] if wants_tools else None)


def test_a_template_that_looks_ahead_for_a_turn_renders_that_turn_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template = OTHERS["last of users"]
    messages = [
        {"role": role, "content": "x"} for _ in range(9) for role in ("system", "user", "assistant")
    ]
    whole = Beginnings(template, {"messages": messages}, {})
    found = [whole.first(count)[0] for count in range(1, len(messages))]
    assert [place > 0 for place in found] == [count % 3 != 2 for count in range(1, len(messages))]


def test_a_template_that_draws_lots_is_rendered_for_each_beginning() -> None:
    template = looped("{{ range(9) | random }}")
    whole = Beginnings(template, {"messages": cases.PLAIN}, {})
    assert {whole.first(count)[0] for count in range(1, 4)} == {0}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{% if loop.first %}1{% endif %}", "1"),
        ("{% if loop.first %}1{% else %}2{% endif %}", "1222"),
        ("{% if loop.first %}1{% elif m %}2{% endif %}", "1222"),
        ("{% if loop.first %}1{% endif %}.", "1...."),
        ("{% if loop.last %}1{% endif %}", "1"),
    ],
)
def test_loops_for_their_first_item_write_what_they_did(body: str, text: str) -> None:
    template = f"{{% for m in messages %}}{body}{{% endfor %}}"
    assert render_template(template, {"messages": cases.PLAIN}) == text


def test_hooks_are_nothing_that_a_template_can_name() -> None:
    with pytest.raises(TokenizerError, match="No filter named"):
        render_template("{{ ['x'] | map('hook: literal') | list }}", {"messages": []})

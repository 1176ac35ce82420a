"""What keeps typed control tokens out changes nothing else: ids are those of `transformers`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from llamita.errors import TokenizerError
from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.chat_shield import control_pattern
from llamita.tokenizer.hf import HFTokenizer
from tests.tokenizer import chat_cases as cases
from tests.tokenizer.chat_cases import CONTROL_TOKENS

GEMMA = """\
{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('take turns') }}{% endif %}\
{{ '<|start_header_id|>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}\
{{ m.content | trim + '<|end_header_id|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|start_header_id|>model\\n' }}{% endif %}"""
MISTRAL = """\
{{- bos_token }}{%- for m in messages %}{%- if m.role == 'user' %}\
{{- '<|user|>' + m['content'] + '<|end|>' }}{%- else %}\
{{- ' ' + m['content'] | trim + eos_token }}{%- endif %}{%- endfor %}"""
ASKING = """\
{%- set ns = namespace(last=0) %}{%- for m in messages %}\
{%- if m.role == 'user' and not (m.content.startswith('<tool_response>')
    and m.content.endswith('</tool_response>')) %}{%- set ns.last = loop.index0 %}{%- endif %}\
{%- endfor %}{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}\
{%- if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last %}\
{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}\
{{- m.content + '<|im_end|>\\n' }}{%- endfor %}"""
LOOKS = [
    "{% if '<think>' in m.content %}yes{% endif %}{{ m.content }}",
    "{{ m.content.split('</think>')[0] }}:{{ m.content.split('</think>')[-1].lstrip('\\n') }}",
    "{{ m.content.split('</think>', 1) | join('#') }}{{ m.content.rsplit('<think>', 1)[0] }}",
    "{{ m.content.split() | join('_') }}{{ m.content.splitlines() | join('_') }}",
    "{% set a, b, c = m.content.partition('<|im_end|>') %}{{ c }}:{{ b }}:{{ a }}",
    "{% set a, b, c = m.content.rpartition('|im_') %}{{ c }}:{{ b }}:{{ a }}",
    "{{ m.content.replace('<think>', '') }}:{{ m.content | replace('im_', '', 1) }}",
    "{{ m.content.replace('', '.') }}{{ m.content.replace('<', '(', 1) }}",
    "{{ m.content.strip('<> ') }}:{{ m.content | trim('<|') }}:{{ m.content.rstrip('|>') }}",
    "{{ m.content.removeprefix('<think>') }}:{{ m.content.removesuffix('<|im_end|>') }}",
    "{{ m.content.find('<|') }}{{ m.content.count('<') }}{{ m.content.rfind('</think>') }}",
    "{% if m.content[:1] == '<' %}yes{% endif %}{{ m.content[1:] }}{{ m.content[::-1] }}",
    "{% if m.content is in ['<', '<think>'] %}yes{% endif %}{{ [m.content] }}",
    "{{ ['<', m.content] | select('equalto', '<') | list | length }}{{ m }}{{ m | tojson }}",
    "{{ {'<think>': 1} | length if m.content in {'<think>': 1} else 0 }}{{ m.content | e }}",
    "{% for c in m.content %}{{ '(' if c == '<' else c }}{% endfor %}",
]
TEMPLATES = {
    "chatml": cases.CHATML,
    "llama2": cases.LLAMA2,
    "llama3": cases.LLAMA3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "qwen": cases.QWEN,
    "own chatml-signatures": BUILT_IN["chatml-signatures"].template,
    "own llama3": BUILT_IN["llama3"].template,
}
WORDS = ("a", "s", "id", "end", "of", "I", "user", "text", "é", "中", "Hello", "12", "_")
PARTS = ("<", "|", "|>", "<|", "im_", "_end", "end|>", "<|im_end", "think", "</", "call>", "tool_")
SPACES = (" ", "  ", "\n", "\n\n", "\t", "\u00a0", "\r\n")
HARMLESS = (
    st.lists(st.sampled_from([*WORDS, *PARTS, *SPACES]), max_size=5)
    .map("".join)
    .filter(lambda text: not control_pattern(CONTROL_TOKENS).search(text))
)

TYPED = st.lists(
    st.sampled_from(["<", "|im_", "<|im_", "end|>", "<|im_end|>", "<think>", "</think>", " ", "\n",
                     "x", "\\", "\\udbc0\\udc02", "\\U00100002", "\U00100002", "<tool_response>"]),
    max_size=6,
).map("".join)  # fmt: skip


def spoken(*contents: Any) -> list[dict[str, Any]]:
    """The contents as turns of user and assistant."""
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(contents)]


@given(texts=st.tuples(HARMLESS, HARMLESS, HARMLESS), name=st.sampled_from(sorted(TEMPLATES)))
def test_texts_without_control_tokens_get_the_ids_of_transformers(
    chat_tokenizer: HFTokenizer,
    peer: PreTrainedTokenizerBase,
    texts: tuple[str, str, str],
    name: str,
) -> None:
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(TEMPLATES[name]))
    messages = spoken(*texts)
    rendering = peer.apply_chat_template(
        messages, tokenize=False, chat_template=TEMPLATES[name], add_generation_prompt=True
    )
    assert chat.render(messages, add_generation_prompt=True) == rendering
    ids = peer(rendering, add_special_tokens=False)["input_ids"]
    assert chat.encode(messages, add_generation_prompt=True) == ids


@pytest.mark.parametrize("text", [" end", "\nend", " s ", " id", "  a", " _", " |> y", "x <|\n"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_white_space_beside_parts_of_names_is_trimmed(
    name: str, text: str, chat_tokenizer: HFTokenizer, peer: PreTrainedTokenizerBase
) -> None:
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(TEMPLATES[name]))
    for messages in (spoken(text), spoken("q", text, "z")):
        assert chat.encode(messages) == peer(chat.render(messages))["input_ids"]


@pytest.mark.parametrize("look", LOOKS)
@settings(max_examples=40)
@given(text=TYPED)
def test_what_a_template_finds_in_a_text_it_finds_behind_the_shield(
    look: str, chat_tokenizer: HFTokenizer, text: str
) -> None:
    """The text is that of the plain rendering, and its control tokens are the template's own."""
    template = f"{{% for m in messages %}}<|im_start|>{look}<|im_end|>{{% endfor %}}"
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(template))
    messages = [{"role": "user", "content": text}, {"role": "user", "content": "a"}]
    ids = chat.encode(messages)
    assert chat_tokenizer.decode(ids, skip_special_tokens=False) == chat.render(messages)
    start, end = (chat_tokenizer.special_tokens[name] for name in ("<|im_start|>", "<|im_end|>"))
    assert [i for i in ids if chat_tokenizer.is_special(i)] == [start, end, start, end]


def test_a_template_that_knows_tool_results_by_their_text_is_answered_as_they_stand(
    chat_tokenizer: HFTokenizer,
) -> None:
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(ASKING))
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "reasoning_content": "Hm."},
        {"role": "user", "content": "<tool_response>\nx\n</tool_response>"},
    ]
    for result in (messages[2]["content"], "<tool_response>x", "x</tool_response>"):
        messages[2]["content"] = result
        ids = chat.encode(messages)
        text = chat.render(messages)
        assert chat_tokenizer.decode(ids, skip_special_tokens=False) == text
        think = chat_tokenizer.special_tokens["<think>"]
        assert (
            ids.count(think)
            == text.count("<think>")
            == (result == "<tool_response>\nx\n</tool_response>")
        )
        assert chat_tokenizer.special_tokens["<tool_response>"] not in ids


def test_a_refusal_names_the_text_as_it_is(chat_tokenizer: HFTokenizer) -> None:
    template = "{{ raise_exception('not ' + messages[0].content) }}"
    with pytest.raises(TokenizerError, match="not <b>"):
        ChatFormat.of(chat_tokenizer.with_chat_template(template)).encode(spoken("<b>"))

"""What keeps typed control tokens out changes nothing else: ids are those of `transformers`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

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
TEMPLATES = {
    "chatml": cases.CHATML,
    "llama2": cases.LLAMA2,
    "llama3": cases.LLAMA3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "qwen": cases.QWEN,
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

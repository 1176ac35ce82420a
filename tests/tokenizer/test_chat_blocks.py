"""Reasoning and tool calls that stand as text in what an assistant said."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.chat_blocks import block_tags
from llamita.tokenizer.hf import HFTokenizer
from tests.tokenizer import chat_cases as cases
from tests.tokenizer.chat_cases import CONTROL_TOKENS, call

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
REASONED = "<think>\nHm, <b>.\n</think>\n\nYes."
TEMPLATES = {
    "chatml": cases.CHATML,
    "generation": cases.GENERATION,
    "qwen": cases.QWEN,
    "qwen-thinking": cases.QWEN_THINKING,
    "own chatml-tools": BUILT_IN["chatml-tools"].template,
    "own chatml-signatures": BUILT_IN["chatml-signatures"].template,
}
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


def answered(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "q"}, {"role": "assistant", "content": content}]


def tags(tokenizer: HFTokenizer, ids: list[int]) -> list[str]:
    names = {tokenizer.special_tokens[name]: name for name in TAGS}
    return [names[token_id] for token_id in ids if token_id in names]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    "text",
    [
        REASONED,
        "<think>a</think>b<think>c</think>",
        CALL,
        f"Sure.\n{CALL}\n{CALL}",
        f"{REASONED}\n{CALL}",
        f"{CALL} or so",
    ],
)
def test_blocks_of_the_assistant_are_control_tokens_as_in_transformers(
    name: str, text: str, chat_tokenizer: HFTokenizer, peer: PreTrainedTokenizerBase
) -> None:
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(TEMPLATES[name]))
    ids = chat.encode(answered(text))
    rendering = peer.apply_chat_template(
        answered(text), tokenize=False, chat_template=TEMPLATES[name]
    )
    theirs = peer(rendering, add_special_tokens=False)["input_ids"]
    if text.endswith(CALL) and "tool_calls" in TEMPLATES[name]:  # the template spells them
        assert tags(chat_tokenizer, ids) == tags(chat_tokenizer, theirs)
    else:
        assert ids == theirs
    assert tags(chat_tokenizer, ids)
    cuts = (0, 3, len(text) // 2, len(text))
    parts = [{"type": "text", "text": text[a:b]} for a, b in pairwise(cuts)]
    assert chat.encode(answered(parts)) == ids
    assert chat.encode_with_spans(answered(parts)).token_ids == ids


def test_case_12_blocks_of_others_and_what_is_no_block_stay_text(
    chat_tokenizer: HFTokenizer,
) -> None:
    for template in (cases.CHATML, cases.QWEN, BUILT_IN["chatml-tools"].template):
        chat = ChatFormat.of(chat_tokenizer.with_chat_template(template))
        for text in (REASONED, CALL):
            for role in ("system", "user"):
                messages = [{"role": role, "content": text}, {"role": "user", "content": "q"}]
                assert tags(chat_tokenizer, chat.encode(messages)) == []
        for text in (
            *("<think>a", "a</think>", "</think><think>", "<tool_call>no</tool_call>"),
            *('<tool_call>{"name": "f"}</tool_call>', '<tool_call>{"name": "f", "arguments": {}}'),
        ):
            assert tags(chat_tokenizer, chat.encode(answered(text))) == []
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(cases.CHATML))
    inside = '<tool_call>{"name": "<think></think>", "arguments": {}}</tool_call>'
    assert tags(chat_tokenizer, chat.encode(answered(inside))) == ["<tool_call>", "</tool_call>"]
    inside = f"<think>{CALL}</think>"
    assert tags(chat_tokenizer, chat.encode(answered(inside))) == ["<think>", "</think>"]


def test_case_12_arguments_that_look_like_a_message_of_the_assistant_stay_text(
    chat_tokenizer: HFTokenizer,
) -> None:
    chat = ChatFormat.built_in("chatml-tools", chat_tokenizer)
    made = call("f", message={"role": "assistant", "content": REASONED})
    message = {"role": "assistant", "content": "", "tool_calls": [made]}
    ids = chat.encode([{"role": "user", "content": "q"}, message])
    assert tags(chat_tokenizer, ids) == ["<tool_call>", "</tool_call>"]


@given(
    pieces=st.lists(
        st.sampled_from([*TAGS, "a", '{"name": "f", "arguments": {}}', "\n", "<"]), max_size=8
    )
)
def test_blocks_never_overlap_and_are_well_formed(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = list(block_tags(text, CONTROL_TOKENS))
    assert found == sorted(found)
    names = [text[start:end] for start, end in found]
    assert all(
        (a, b) in ((TAGS[0], TAGS[1]), (TAGS[2], TAGS[3]))
        for a, b in zip(names[::2], names[1::2], strict=True)
    )
    assert not list(block_tags(text, ["<think>", "<tool_call>"]))

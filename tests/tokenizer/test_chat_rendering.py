"""Chats are written as `transformers` writes them, as text and as ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from llamita.errors import TokenizerError
from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.load import load_tokenizer
from tests.tokenizer import chat_cases as cases
from tests.tokenizer.chat_cases import PLAIN, SYSTEM, TOOLS, WEATHER

TEMPLATES = {
    "chatml": cases.CHATML,
    "generation": cases.GENERATION,
    "llama2": cases.LLAMA2,
    "llama3": cases.LLAMA3,
    "qwen": cases.QWEN,
    "qwen-thinking": cases.QWEN_THINKING,
    **{f"own {name}": entry.template for name, entry in BUILT_IN.items()},
}
WITH_TOOLS = ("llama3", "qwen", "own chatml-tools", "own chatml-signatures", "own llama3")


def conversations(name: str) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]]:
    plain: list[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]]
    plain = [(PLAIN, None), (PLAIN[:1], None), (PLAIN[:3], None)]
    if name != "own armgpt":
        plain.append((SYSTEM, None))
    if name in WITH_TOOLS:
        plain += [(TOOLS, [WEATHER]), (TOOLS[:3], [WEATHER]), (SYSTEM, [WEATHER, WEATHER])]
    return plain


@pytest.mark.parametrize("name", TEMPLATES)
def test_text_and_ids_equal_transformers(
    name: str, chat_tokenizer: HFTokenizer, peer: PreTrainedTokenizerBase
) -> None:
    template = TEMPLATES[name]
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(template))
    for messages, tools in conversations(name):
        for prompt in (False, True):
            theirs: dict[str, Any] = {
                "tools": tools, "chat_template": template, "add_generation_prompt": prompt
            }  # fmt: skip
            text = peer.apply_chat_template(messages, tokenize=False, **theirs)
            assert chat.render(messages, tools, prompt) == text
            ids = peer.apply_chat_template(messages, return_dict=False, **theirs)
            assert chat.encode(messages, tools, prompt) == ids
            assert chat_tokenizer.decode(ids, skip_special_tokens=False) == text


def test_the_template_of_smollm2_is_rendered_and_encoded_as_transformers_does(
    smollm2: Path, tmp_path: Path
) -> None:
    from llamita.formats.detect import load_checkpoint
    from llamita.tokenizer.load import checkpoint_tokenizer

    tokenizer = checkpoint_tokenizer(load_checkpoint(smollm2, None))
    assert tokenizer is not None
    chat = ChatFormat.of(tokenizer)
    assert chat.turn_end_ids == (tokenizer.special_tokens["<|im_end|>"],)
    tokenizer.save(tmp_path)
    peer = AutoTokenizer.from_pretrained(tmp_path)
    for messages in (PLAIN, SYSTEM, PLAIN[:1]):
        text = peer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert chat.render(messages, add_generation_prompt=True) == text
        ids = peer.apply_chat_template(messages, return_dict=False, add_generation_prompt=True)
        assert chat.encode(messages, add_generation_prompt=True) == ids


def test_variables_reach_the_template(
    chat_tokenizer: HFTokenizer, peer: PreTrainedTokenizerBase
) -> None:
    for template, variables in (
        (cases.LLAMA3, {"date_string": "1 May 2025"}),
        (cases.QWEN_THINKING, {"enable_thinking": False}),
    ):
        chat = ChatFormat.of(chat_tokenizer.with_chat_template(template))
        theirs = peer.apply_chat_template(
            PLAIN[:1],
            tokenize=False,
            chat_template=template,
            add_generation_prompt=True,
            **variables,
        )
        assert chat.render(PLAIN[:1], add_generation_prompt=True, **variables) == theirs
        assert chat.render(PLAIN[:1], add_generation_prompt=True) != theirs


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_list_of_text_parts_is_the_text(name: str, chat_tokenizer: HFTokenizer) -> None:
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(TEMPLATES[name]))
    parts = [
        {**message, "content": [{"type": "text", "text": message["content"]}]} for message in PLAIN
    ]
    assert chat.render(parts) == chat.render(PLAIN)
    assert chat.encode(parts) == chat.encode(PLAIN)


def test_a_template_that_takes_parts_alone_takes_texts_too(chat_tokenizer: HFTokenizer) -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}:{% for part in m.content %}"
        "{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>{% endfor %}"
    )
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(template))
    assert chat.render(PLAIN[3:]) == "<|im_start|>assistant:It is 108.<|im_end|>"


def test_the_template_for_tools_is_taken_when_there_are_tools(
    chat_tokenizer: HFTokenizer, tmp_path: Path
) -> None:
    chat_tokenizer.with_chat_template(cases.CHATML).save(tmp_path)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text(cases.QWEN)
    chat = ChatFormat.of(load_tokenizer(tmp_path))
    qwen = ChatFormat.of(chat_tokenizer.with_chat_template(cases.QWEN))
    assert chat.render(TOOLS, [WEATHER]) == qwen.render(TOOLS, [WEATHER])
    assert "Be brief." in chat.render(PLAIN)


def test_tools_without_a_place_for_them_are_refused(chat_tokenizer: HFTokenizer) -> None:
    chat = ChatFormat.of(chat_tokenizer.with_chat_template(cases.CHATML))
    with pytest.raises(TokenizerError, match="no place for them"):
        chat.render(PLAIN, [WEATHER])
    assert chat.render(PLAIN, []) == chat.render(PLAIN)


def test_no_template_is_an_error_with_a_way_out(chat_tokenizer: HFTokenizer) -> None:
    with pytest.raises(TokenizerError, match="with_chat_template"):
        ChatFormat.of(chat_tokenizer)


def test_a_built_in_format_needs_its_control_tokens(
    chat_tokenizer: HFTokenizer, trained: Any
) -> None:
    for name, entry in BUILT_IN.items():
        assert ChatFormat.built_in(name, chat_tokenizer).template == entry.template
    with pytest.raises(TokenizerError, match=r"<\|user\|>"):
        ChatFormat.built_in("armgpt", trained)
    with pytest.raises(
        TokenizerError, match="chatml-tools, chatml-signatures, armgpt, llama2, llama3"
    ):
        ChatFormat.built_in("alpaca", chat_tokenizer)


def test_hermes_chats_look_as_hermes_writes_them(chat_tokenizer: HFTokenizer) -> None:
    chat = ChatFormat.built_in("chatml-tools", chat_tokenizer)
    assert chat.render(
        [{"role": "system", "content": "S"}, *TOOLS], [WEATHER], add_generation_prompt=True
    ) == (
        "<|im_start|>system\nS\n\nYou have access to the following tools:\n\n"
        '{"name": "weather", "description": "The weather <now>, \'é\' & more", "parameters": '
        '{"type": "object", "properties": {"city": {"type": "string"}}}}<|im_end|>\n'
        "<|im_start|>user\nIs it warm in Երևան?<|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>{"name": "weather", "arguments": {"city": "Երևան", "unit": "°C <b>"}}'
        "</tool_call><|im_end|>\n<|im_start|>tool\n<tool_response>\n"
        '{"temperature": 31}\n</tool_response><|im_end|>\n'
        "<|im_start|>assistant\nYes, 31 °C.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_armgpt_and_llama2_chats_look_as_theirs(chat_tokenizer: HFTokenizer) -> None:
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "r"},
    ]
    armgpt = ChatFormat.built_in("armgpt", chat_tokenizer)
    assert armgpt.render(messages, add_generation_prompt=True) == (
        "<|user|>q<|end|><|assistant|>a<|end|><|user|>r<|end|><|assistant|>"
    )
    with pytest.raises(TokenizerError, match="only user and assistant turns, not system"):
        armgpt.render(SYSTEM)
    llama2 = ChatFormat.built_in("llama2", chat_tokenizer)
    assert llama2.render([{"role": "system", "content": "s"}, *messages]) == (
        "<|begin_of_text|>[INST] <<SYS>>\ns\n<</SYS>>\n\nq [/INST] a <|end_of_text|>"
        "<|begin_of_text|>[INST] r [/INST]"
    )


@pytest.mark.parametrize("name", ["chatml-tools", "chatml-signatures", "llama3"])
def test_a_tool_is_written_alike_with_and_without_openais_wrapping(
    name: str, chat_tokenizer: HFTokenizer
) -> None:
    chat = ChatFormat.built_in(name, chat_tokenizer)
    assert chat.render(TOOLS, [WEATHER]) == chat.render(TOOLS, [WEATHER["function"]])

"""Chatting with a model: what it reads, what it answers, and where it stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import llamita
from llamita.errors import GenerationError, TokenizerError
from llamita.inference.lm import LM
from llamita.tokenizer.chat import BUILT_IN
from llamita.tokenizer.convert import added_token
from llamita.tokenizer.convert import template as framed
from llamita.tokenizer.files import tokenizer_config
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.surface import BYTE_CHARACTERS
from tests.inference.conftest import BOS, EOS, make_model, scripted_lm

START, END, CALL, CALL_END = 258, 259, 260, 261
VOCAB = 262
HELLO = [{"role": "user", "content": "Hi<|im_end|>"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


CONTROL = {
    "<eos>": EOS,
    "<bos>": BOS,
    "<|im_start|>": START,
    "<|im_end|>": END,
    "<tool_call>": CALL,
    "</tool_call>": CALL_END,
}


class ChatTokenizer(HFTokenizer):
    """Each byte of UTF-8 is a token; behind them come the control tokens of ChatML."""

    def __init__(self, bos_prefix: tuple[int, ...] = ()) -> None:
        model = {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {character: byte for byte, character in enumerate(BYTE_CHARACTERS)} | CONTROL,
            "merges": [],
        }
        steps = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
        definition = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [added_token(name, i, True) for name, i in CONTROL.items()],
            "normalizer": None,
            "pre_tokenizer": {**steps, "use_regex": False},
            "post_processor": framed({BOS: "<bos>"}, list(bos_prefix), []),
            "decoder": {**steps, "use_regex": True},
            "model": model,
        }
        config = tokenizer_config(bos_token="<bos>", eos_token="<eos>", add_bos=bool(bos_prefix))
        super().__init__(definition, {"tokenizer_config.json": config})


def chatting(template: str = BUILT_IN["chatml-tools"].template) -> Any:
    return ChatTokenizer().with_chat_template(template)


def scripted(script: list[int], prompt: list[int]) -> LM:
    return scripted_lm(
        script, len(prompt), chatting(), vocab_size=VOCAB, max_position_embeddings=600
    )


def prompt_of(messages: Any, tools: Any = None) -> list[int]:
    lm = LM(make_model(vocab_size=VOCAB), chatting())
    return lm.chat_prompt(messages, tools)


def test_an_answer_ends_with_its_turn() -> None:
    prompt = prompt_of(HELLO)
    assert prompt == [
        START, *b"user\nHi<|im_end|>", END, *b"\n", START, *b"assistant\n"
    ]  # fmt: skip
    result = scripted([*b"Hello.", END, *b"more"], prompt).chat(HELLO, temperature=0)
    assert result.message == {"role": "assistant", "content": "Hello."}
    assert (result.text, result.finish_reason, result.stop_reason) == ("Hello.", "stop", END)
    assert result.prompt_token_ids == prompt
    assert result.tool_calls == []


def test_tool_calls_are_read_from_the_answer() -> None:
    said = b'{"name": "f", "arguments": {"x": "\xc3\xa9"}}'
    lm = scripted([*b"See: ", CALL, *said, CALL_END, END], prompt_of(HELLO, [TOOL]))
    result = lm.chat(HELLO, [TOOL], temperature=0)
    [call] = result.tool_calls
    assert call["function"] == {"name": "f", "arguments": '{"x": "é"}'}
    assert result.message is not None
    assert result.message["content"] == "See:"
    follow = [*HELLO, result.message, {"role": "tool", "content": "4"}]
    assert CALL in lm.chat_prompt(follow, [TOOL])


def test_a_stop_string_ends_the_message_too() -> None:
    lm = scripted([CALL, *b"one two three"], prompt_of(HELLO))
    result = lm.chat(HELLO, temperature=0, stop="two")
    assert result.text == "one "
    assert result.message == {"role": "assistant", "content": "<tool_call>one "}


def test_several_conversations_are_a_batch() -> None:
    lm = LM(make_model(vocab_size=VOCAB, max_position_embeddings=200), chatting())
    other = [*HELLO, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    together = lm.chat([HELLO, other], temperature=0, max_tokens=5)
    alone = [lm.chat(chat, temperature=0, max_tokens=5) for chat in (HELLO, other)]
    assert together == alone
    assert [result.message for result in together] == [result.message for result in alone]


def test_case_13_what_ends_a_turn_stops_every_generation() -> None:
    model = make_model(vocab_size=VOCAB)
    assert LM(model, ChatTokenizer()).stop_token_ids == (EOS,)
    assert LM(model, chatting()).stop_token_ids == (EOS, END)
    assert LM(model, chatting(), {"eos_token_id": [3]}).stop_token_ids == (3, EOS, END)


def test_a_message_that_waits_for_a_tool_has_ended() -> None:
    """Llama 3.1 ends it so; a template need not show that."""
    tokenizer = chatting()
    tokenizer.special_tokens = {**tokenizer.special_tokens, "<|eom_id|>": CALL}
    for known in (tokenizer, ChatTokenizer()):
        ends = LM(make_model(vocab_size=VOCAB), known).stop_token_ids
        assert (CALL in ends) == (known is tokenizer)


def test_case_11_a_chat_begins_with_one_bos() -> None:
    tokenizer = ChatTokenizer(bos_prefix=(257,))
    for template in ("{{ bos_token }}", ""):
        chat = tokenizer.with_chat_template(template + BUILT_IN["chatml-tools"].template)
        prompt = LM(make_model(vocab_size=VOCAB), chat).chat_prompt(HELLO)
        assert prompt[:2] == [257, START]
        assert prompt.count(257) == 1


def test_a_model_that_cannot_chat_says_what_to_do(model: Any, lm: LM) -> None:
    with pytest.raises(GenerationError, match="no tokenizer"):
        LM(model).chat(HELLO)
    with pytest.raises(GenerationError, match=r"chat_template\.jinja"):
        lm.chat(HELLO)


def test_a_damaged_template_leaves_generating_possible() -> None:
    lm = LM(make_model(vocab_size=VOCAB), chatting("{{ broken("))
    with pytest.warns(UserWarning, match="what ends a turn is not known"):
        assert lm.stop_token_ids == (EOS,)
    assert lm.generate("a", max_tokens=2, stop_token_ids=[]).token_ids
    with pytest.raises(TokenizerError, match="line 1"):
        lm.chat(HELLO)


def test_wrong_settings_and_messages_are_named() -> None:
    lm = LM(make_model(vocab_size=VOCAB, max_position_embeddings=200), chatting())
    with pytest.raises(GenerationError, match="temperatur"):
        lm.chat(HELLO, temperatur=0)
    for wrong in ("x", -5):
        with pytest.raises(GenerationError, match=f"max_tokens is {wrong!r}"):
            lm.fit_chat(HELLO, max_tokens=wrong)  # type: ignore[arg-type]
    with pytest.raises(TokenizerError, match="message 1"):
        lm.chat([*HELLO, {"role": "user"}])
    with pytest.raises(TokenizerError, match="empty"):
        lm.chat([])


@pytest.mark.slow
def test_smollm2_answers_sensibly(smollm2: Path) -> None:
    lm = llamita.load(smollm2)
    torch.manual_seed(0)
    result = lm.chat(
        [{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=40,
    )
    assert "Paris" in result.text
    assert result.finish_reason == "stop"
    assert result.stop_reason == lm.tokenizer.special_tokens["<|im_end|>"]  # type: ignore[union-attr]

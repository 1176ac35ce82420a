"""Control tokens added to a tokenizer that lacks them, whatever its kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from llamita.errors import TokenizerError
from llamita.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.chat_ready import never_trained, ready_for_chats
from llamita.tokenizer.export import sentencepiece_model
from llamita.tokenizer.load import tokenizer_of
from llamita.tokenizer.spm import SentencePieceTokenizer

TEXT = "user assistant: what is it and is it raining? It is dry, 123456789. <|im_start|> " * 20
NAMES = ["<tool_call>", "</tool_call>", "<|im_end|>"]
MODEL = "a SentencePiece model"
KINDS = ["bpe:290", "spm:290", "unigram:290", "char", MODEL]


def _trained(kind: str) -> Tokenizer:
    return train_tokenizer(iter([TEXT]), kind, seed=0, log=lambda line: None)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    trained = {kind: _trained(kind) for kind in KINDS if kind != MODEL}
    return {**trained, MODEL: SentencePieceTokenizer(sentencepiece_model(trained["spm:290"]))}


@pytest.mark.parametrize("kind", KINDS)
def test_new_ids_stand_behind_the_old_ones_and_nothing_else_changes(
    kind: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    old = tokenizers[kind]
    new = old.with_control_tokens(NAMES)
    assert new.vocab_size == old.vocab_size + 2  # it has <|im_end|>
    assert [new.special_tokens[name] for name in NAMES[:2]] == [old.vocab_size, old.vocab_size + 1]
    for role in ("bos_token_id", "eos_token_id", "pad_token_id", "bos_prefix", "eos_suffix"):
        assert getattr(new, role) == getattr(old, role)
    text = "It is <tool_call>dry</tool_call> and 12<|im_end|> ջուր"
    assert new.encode(text) == old.encode(text)
    assert new.decode(new.encode(text)) == text
    new.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.fingerprint == new.fingerprint
    assert loaded.encode(text) == old.encode(text)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.convert_tokens_to_ids(NAMES) == [new.special_tokens[name] for name in NAMES]
    assert len(theirs) == new.vocab_size


@pytest.mark.parametrize("kind", KINDS)
def test_chats_are_encoded_alike_before_and_after_saving(
    kind: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    ready = ready_for_chats(tokenizers[kind])
    assert ready.chat_template == BUILT_IN["chatml-tools"].template
    ready.save(tmp_path)
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    messages = [
        {"role": "user", "content": "is it <tool_call> raining?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "123"},
        {"role": "assistant", "content": "It is dry."},
    ]
    own = ChatFormat.of(ready)
    ids = own.encode(messages)
    assert ChatFormat.of(load_tokenizer(tmp_path)).encode(messages) == ids
    assert ids.count(ready.special_tokens["<tool_call>"]) == 1
    assert ids.count(ready.special_tokens["<tool_response>"]) == 1
    assert own.turn_end_ids == (ready.special_tokens["<|im_end|>"],)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    plain = [message for message in messages if message["role"] != "user"]
    expected = theirs.apply_chat_template(plain, tokenize=True, return_dict=False)
    assert [i for i in own.encode(plain) if i != ready.bos_token_id] == expected


def test_what_is_known_is_not_added_again(tokenizers: dict[str, Tokenizer]) -> None:
    old = tokenizers["bpe:290"]
    assert old.with_control_tokens(["<|im_end|>"]) is old
    ready = ready_for_chats(old)
    assert ready_for_chats(ready) is ready


def test_a_token_of_text_becomes_a_control_token_and_keeps_its_id(tmp_path: Path) -> None:
    old = _trained("bpe:290")
    sizes = {i: len(old.token_bytes(i)) for i in range(old.vocab_size)}
    token_id = max(sizes, key=lambda i: sizes[i])
    text = old.decode([token_id]).replace(" ", "Ġ")
    new = old.with_control_tokens([text])
    assert (new.special_tokens[text], new.vocab_size) == (token_id, old.vocab_size)
    assert token_id in old.encode(old.decode([token_id]))
    assert token_id not in new.encode(old.decode([token_id]))
    assert new.decode(new.encode("is it dry")) == "is it dry"


def test_of_a_sentencepiece_model_text_stays_text(tokenizers: dict[str, Tokenizer]) -> None:
    old = tokenizers[MODEL]
    with pytest.raises(TokenizerError, match="ordinary text"):
        old.with_control_tokens(["i"])


def test_a_template_whose_tokens_are_missing_gets_them() -> None:
    template = (
        "{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m.content }}{{ '<|done|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    plain = _trained("bpe:290").with_chat_template(template)
    ready = ready_for_chats(plain)
    assert set(ready.special_tokens) - set(plain.special_tokens) == {"<|done|>", "<|assistant|>"}
    assert ChatFormat.of(ready).turn_end_ids == (ready.special_tokens["<|done|>"],)


def test_a_template_that_ends_its_turns_stays_as_it_was_made() -> None:
    template = (
        "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + eos_token }}{% endfor %}"
    )
    plain = _trained("bpe:290").with_chat_template(template)
    assert ready_for_chats(plain) is plain


def test_a_real_models_tokenizer_lacks_nothing(smollm2: Path) -> None:
    own = tokenizer_of(smollm2)
    assert ready_for_chats(own) is own
    more = own.with_control_tokens(["<tool_call>", "</tool_call>"])
    assert more.vocab_size == own.vocab_size + 2
    text = "def f(x):\n    return x  # <tool_call> 🦙"
    assert more.encode(text) == own.encode(text)


@given(text=st.text(max_size=40))
def test_no_text_becomes_a_new_token(text: str) -> None:
    added = [_NEW.special_tokens[name] for name in NAMES]
    ids = _NEW.encode(f"{text}<tool_call>{text}</tool_call>")
    assert not set(ids) & set(added)
    assert _NEW.decode(ids) == f"{text}<tool_call>{text}</tool_call>"


_NEW = _trained("bpe:290").with_control_tokens(NAMES)


@pytest.mark.parametrize("kind", KINDS)
def test_what_pretraining_never_saw_are_the_formats_tokens_and_not_the_end_of_texts(
    kind: str, tokenizers: dict[str, Tokenizer]
) -> None:
    base = tokenizers[kind]
    able = ready_for_chats(base)
    chosen = BUILT_IN["chatml-tools"]
    names = [*chosen.control_tokens, *chosen.tool_tokens]
    assert never_trained(base, able) == tuple(sorted(able.special_tokens[n] for n in names))
    assert never_trained(able, able) == ()  # with its template: it has learned chats
    assert never_trained(base, base) == ()


def test_a_token_of_text_that_became_a_control_token_was_never_seen_as_one(
    tokenizers: dict[str, Tokenizer],
) -> None:
    base = tokenizers["char"].with_chat_template("{{ '<|im_end|>w' }}{{ bos_token }}")
    able = base.with_control_tokens(["w"])
    assert able.special_tokens["w"] < base.vocab_size
    assert never_trained(base, able) == (able.special_tokens["w"],)

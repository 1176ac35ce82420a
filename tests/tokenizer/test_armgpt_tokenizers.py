"""ArmGPT's tokenizer JSON: characters, or a SentencePiece model; told from a tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from llamita.errors import TokenizerError
from llamita.tokenizer import Tokenizer, load_tokenizer
from llamita.tokenizer.armgpt import read_armgpt
from llamita.tokenizer.export import armgpt_json
from tests.tokenizer.tokenizer_texts import MIXED, train_model

CONTROL = ["<|user|>", "<|assistant|>", "<|end|>"]
LETTERS = "\n !abcdeé▁ԱԲա"
TOKENS = [*CONTROL, *LETTERS]
STOI = {token: token_id for token_id, token in enumerate(TOKENS)}
ITOS = {str(token_id): token for token, token_id in STOI.items()}


def load(write: Any, content: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(write("bpe_tokenizer.json", json.dumps(content).encode()))


@pytest.mark.parametrize(
    "tables",
    [
        {"itos": ITOS, "special_tokens": CONTROL},
        {"itos": TOKENS, "stoi": STOI, "special_tokens": {name: STOI[name] for name in CONTROL}},
        {"stoi": STOI, "special_tokens": CONTROL, "vocab_size": len(TOKENS)},
        {
            "itos": list(LETTERS),
            "special_tokens": {name: len(LETTERS) + i for i, name in enumerate(CONTROL)},
        },
    ],
    ids=["object", "list", "stoi", "behind"],
)
def test_characters_in_every_shape(tables: dict[str, Any], write: Any) -> None:
    tokenizer = load(write, {"type": "char", **tables})
    assert tokenizer.kind == "char"
    assert tokenizer.vocab_size == len(TOKENS)
    assert set(tokenizer.special_tokens) == set(CONTROL)
    assert tokenizer.decode(tokenizer.encode("abé\n ▁Ա")) == "abé\n ▁Ա"
    assert not tokenizer.add_bos
    assert tokenizer.eos_token_id == tokenizer.special_tokens["<|end|>"]


@given(text=st.text(alphabet=LETTERS))
def test_characters_come_back(text: str) -> None:
    content = {"type": "char", "itos": ITOS, "special_tokens": CONTROL}
    tokenizer = read_armgpt(content, {}, Path("tokenizer.json"))
    assert tokenizer.encode(text) == [STOI[character] for character in text]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_control_tokens_never_match_in_text(write: Any) -> None:
    itos = [*TOKENS, *"<|user>t"]
    itos = list(dict.fromkeys(itos + list("assin")))
    tokenizer = load(write, {"type": "char", "itos": itos, "special_tokens": CONTROL})
    ids = tokenizer.encode("<|user|>")
    assert len(ids) == len("<|user|>")
    assert set(ids).isdisjoint(tokenizer.special_tokens.values())


def test_characters_without_a_token_are_refused_by_name(write: Any) -> None:
    tokenizer = load(write, {"type": "char", "itos": ITOS, "special_tokens": CONTROL})
    with pytest.raises(TokenizerError, match=r"no token for 'z' \(U\+007A\)"):
        tokenizer.encode("abz")


def test_an_unknown_token_stands_for_them(write: Any) -> None:
    tokenizer = load(write, {"type": "char", "itos": [*TOKENS, "<unk>"], "special_tokens": CONTROL})
    assert tokenizer.encode("az") == [STOI["a"], len(TOKENS)]
    assert tokenizer.lossy is not None


def bpe_content(corpus: list[str], **options: Any) -> dict[str, Any]:
    model = train_model(
        corpus,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        **options,
    )
    return {"type": "bpe", "vocab_size": 500, "model_file": model.hex()}


def test_a_sentencepiece_model_with_symbols(write: Any, corpus: list[str]) -> None:
    content = bpe_content(corpus, user_defined_symbols=CONTROL)
    model = bytes.fromhex(content["model_file"])
    peer = SentencePieceProcessor(model_proto=model)
    special = {name: peer.piece_to_id(name) for name in CONTROL}
    tokenizer = load(write, {**content, "special_tokens": special})
    text = MIXED.replace("▁", "")
    assert tokenizer.encode(text) == peer.encode(text)
    assert tokenizer.encode(text, add_special_tokens=True) == peer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert special.items() <= tokenizer.special_tokens.items()
    assert set(tokenizer.encode("<|user|>a<|end|>")).isdisjoint(special.values())
    assert armgpt_json(tokenizer).decode().startswith('{"type": "bpe", "vocab_size": 500')


def test_special_tokens_outside_the_model(write: Any, corpus: list[str], tmp_path: Path) -> None:
    special = {name: 500 + number for number, name in enumerate(CONTROL)}
    tokenizer = load(write, {**bpe_content(corpus), "special_tokens": special})
    assert tokenizer.vocab_size == 503
    assert special.items() <= tokenizer.special_tokens.items()
    tokenizer.save(tmp_path / "saved")
    saved = load_tokenizer(tmp_path / "saved")
    assert saved.encode(MIXED, True) == tokenizer.encode(MIXED, True)
    assert saved.special_tokens == tokenizer.special_tokens
    exported = json.loads(armgpt_json(tokenizer))
    assert exported["vocab_size"] == 503
    back = load(write, exported)
    assert back.encode(MIXED, True) == tokenizer.encode(MIXED, True)
    assert back.special_tokens == tokenizer.special_tokens


CHAR = {"type": "char", "itos": ITOS, "special_tokens": CONTROL}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"type": "char"}, "neither itos nor stoi"),
        ({**CHAR, "itos": 3}, "neither a list nor an object"),
        ({**CHAR, "itos": {"a": "0"}}, "neither a list nor an object"),
        ({**CHAR, "itos": [1, 2]}, "what is no text"),
        ({**CHAR, "itos": ["a", "a"]}, "two ids"),
        ({**CHAR, "itos": {"0": "a", "2": "b"}, "special_tokens": []}, "ids 0 to"),
        ({**CHAR, "stoi": {"a": 0}}, "differ"),
        ({**CHAR, "stoi": []}, "stoi is no object"),
        ({**CHAR, "itos": None, "stoi": {"a": -1}}, "the id -1"),
        ({**CHAR, "itos": ["a", "bc"], "special_tokens": []}, "'bc' is neither one character"),
        ({**CHAR, "special_tokens": ["<|tool|>"]}, r"<\|tool\|> is not in its table"),
        ({**CHAR, "special_tokens": {"<|user|>": 5}}, r"<\|user\|> is 0 in its table and 5"),
        ({**CHAR, "special_tokens": 7}, "neither a list of names"),
        ({**CHAR, "vocab_size": 99}, "ids 0 to 99"),
        ({**CHAR, "merges": []}, "keys llamita does not know: merges"),
        ({"type": "bpe", "vocab_size": 5}, "no model_file"),
        ({"type": "bpe", "vocab_size": 5, "model_file": "xyz"}, "hexadecimal"),
        ({"type": "bpe", "vocab_size": 5, "model_file": "00ff"}, "SentencePiece"),
    ],
)
def test_damage_is_named(content: dict[str, Any], message: str, write: Any) -> None:
    with pytest.raises(TokenizerError, match=message) as caught:
        load(write, content)
    assert "bpe_tokenizer.json" in caught.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 499}, "its vocab_size is 499"),
        ({"special_tokens": {"<|user|>": 600}}, "stand outside"),
        ({"special_tokens": {"<s>": 7}}, "<s> is 1 in its model and 7"),
        ({"special_tokens": ["<|user|>"]}, "no piece of its model"),
        ({"special_tokens": ["▁t"]}, "ordinary text"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(
    change: dict[str, Any], message: str, write: Any, corpus: list[str]
) -> None:
    with pytest.raises(TokenizerError, match=message):
        load(write, {**bpe_content(corpus), **change})

"""What a tokenizer refuses, it refuses in a chat as well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamita.errors import TokenizerError
from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.load import load_tokenizer
from llamita.tokenizer.train import train_tokenizer
from tests.tokenizer.tokenizer_texts import MIXED, WORDS


def test_characters_without_a_token_are_refused_not_dropped(tmp_path: Path) -> None:
    characters = [*"abc <|>", "<|user|>", "<|assistant|>", "<|end|>"]
    content = {"type": "char", "itos": characters, "special_tokens": characters[-3:]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    chat = ChatFormat(tokenizer, BUILT_IN["armgpt"].template)
    assert tokenizer.decode(chat.encode([{"role": "user", "content": "abc"}])) == "abc"
    with pytest.raises(TokenizerError, match="'X'"):
        chat.encode([{"role": "user", "content": "abXc"}])


def test_a_pattern_that_never_ends_is_an_error_of_ours() -> None:
    definition = json.loads(json.dumps(train_tokenizer([WORDS, MIXED], "bpe:350").definition()))
    split = definition["pre_tokenizer"]["pretokenizers"][0]
    split["pattern"] = {"Regex": r"(?:a|a|aa)+$|(?:b|b|bb)+$"}
    tokenizer = HFTokenizer(definition)
    chat = ChatFormat(tokenizer, BUILT_IN["chatml-tools"].template)
    text = "b" * 60 + "c"
    with pytest.raises(TokenizerError):
        tokenizer.encode(text)
    with pytest.raises(TokenizerError):
        chat.encode([{"role": "user", "content": text}])

"""Small texts and tokenizers for the tests of llamita.tokenizer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from llamita.tokenizer import Tokenizer, train_tokenizer
from llamita.tokenizer.hf import HFTokenizer
from tests.tokenizer.chat_cases import with_control_tokens
from tests.tokenizer.tokenizer_texts import MIXED, SPECS, WORDS, train_model


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    """Some thirty thousand characters of words, lines and code, with a few other scripts."""
    generator = random.Random(0)
    words = WORDS.split()
    texts = [MIXED, "Ողջույն աշխարհ։ " * 5, "مرحبا بالعالم " * 5, "你好世界 " * 5]
    for _ in range(60):
        lines = []
        for _ in range(8):
            line = [generator.choice(words) for _ in range(generator.randrange(3, 14))]
            lines.append(" " * generator.choice([0, 0, 0, 4, 8]) + " ".join(line))
        texts.append(generator.choice([".\n", "\n", ";\n\n"]).join(lines))
    return texts


@pytest.fixture(scope="session", params=SPECS)
def trained(request: pytest.FixtureRequest, corpus: list[str]) -> Tokenizer:
    """Each kind of tokenizer that llamita trains."""
    return train_tokenizer(corpus, request.param)


@pytest.fixture(scope="session")
def llama_model(corpus: list[str]) -> bytes:
    """Like Llama 2's: BPE, byte fallback, a space put in front, nothing normalized."""
    return train_model(
        corpus,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
    )


@pytest.fixture(scope="session")
def hermes_model(corpus: list[str]) -> bytes:
    """Like Hermes': the default normalization, and user-defined symbols for chats."""
    return train_model(
        corpus,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        user_defined_symbols=["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "fox"],
    )


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write `data` (bytes) as `name` into a fresh directory and return the file's path."""

    def write(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.fixture(scope="session")
def chat_tokenizer(corpus: list[str]) -> HFTokenizer:
    """Byte-level BPE with the control tokens of all chat formats; it adds no BOS."""
    made = train_tokenizer(corpus, "bpe:500")
    definition, config = with_control_tokens(
        json.dumps({**made.definition(), "post_processor": None}),
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"},
    )
    return HFTokenizer(definition, {"tokenizer_config.json": config})


@pytest.fixture(scope="session")
def peer(
    chat_tokenizer: HFTokenizer, tmp_path_factory: pytest.TempPathFactory
) -> PreTrainedTokenizerBase:
    """The same tokenizer in `transformers`."""
    folder = tmp_path_factory.mktemp("peer")
    chat_tokenizer.save(folder)
    return AutoTokenizer.from_pretrained(folder)

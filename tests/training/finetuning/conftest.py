"""A small base model, and chats that it can learn in seconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from llamita.config import ModelConfig
from llamita.formats.huggingface import save_model_directory
from llamita.model import Transformer
from llamita.tokenizer import Tokenizer, train_tokenizer

TEXT = "user assistant: how many are in the box? There are seven red stones, 0123456789. " * 20
COLOURS = ("red", "blue", "green", "white")


def chats(count: int = 24) -> list[dict[str, Any]]:
    """Short conversations of two turns each."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"how many {COLOURS[n % 4]} in box {n}?"},
                {"role": "assistant", "content": f"There are {n}."},
                {"role": "user", "content": "more?"},
                {"role": "assistant", "content": f"{n + 1}."},
            ]
        }
        for n in range(count)
    ]


def write(path: Path, lines: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def save_base(folder: Path, tokenizer: Tokenizer, **fields: Any) -> Path:
    """An untrained model directory."""
    shape: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 256, "eos_token_id": tokenizer.eos_token_id,
    }  # fmt: skip
    config = ModelConfig(**{**shape, **fields})
    save_model_directory(Transformer(config).initialize(1), folder, tokenizer)
    return folder


@pytest.fixture(scope="session")
def plain_tokenizer() -> Tokenizer:
    return train_tokenizer(iter([TEXT]), "bpe:290", seed=0, log=lambda line: None)


@pytest.fixture(scope="session")
def base(plain_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model without a chat template."""
    return save_base(tmp_path_factory.mktemp("base") / "model", plain_tokenizer)


@pytest.fixture(scope="session")
def chats_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("chats") / "chats.jsonl", chats())

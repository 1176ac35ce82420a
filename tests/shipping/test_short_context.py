"""llama.cpp's server wants room for one token more than it reads, and holds the model's context."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamita.config import ModelConfig
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.shipping.convert import Conversion, convert
from llamita.tokenizer.train import train_tokenizer
from tests.tokenizer.tokenizer_texts import MIXED, WORDS

pytest.importorskip("xllamacpp")


def test_a_model_of_a_context_shorter_than_the_probe_is_judged(tmp_path: Path) -> None:
    tokenizer = train_tokenizer([WORDS, MIXED], "bpe:350")
    config = ModelConfig(tokenizer.vocab_size, 32, 48, 1, 2, max_position_embeddings=40)
    save_model_directory(Transformer(config).initialize(0), tmp_path / "model", tokenizer)
    report = convert(Conversion(tmp_path / "model", tmp_path / "model.gguf"))
    assert report["status"] == "verified", report["differences"]
    assert report["runtime"]["positions"] == 39

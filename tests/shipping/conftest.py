"""Small models to convert, and conversions that no runtime slows down."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llamita.config import ModelConfig
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.shipping import runtime_worker, runtimes
from llamita.shipping.convert import Conversion, convert
from llamita.shipping.verify_tokenizers import PAGE
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.train import train_tokenizer

SENTENCES = PAGE.splitlines() * 8
Convert = Callable[..., dict[str, Any]]


def small_model(tokenizer: Tokenizer, **fields: Any) -> Transformer:
    """Logits of a scale near 1, four query and two key heads."""
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    config = ModelConfig(tokenizer.vocab_size, **{**shape, **fields})
    model = Transformer(config).initialize(0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6.0)
    return model


@pytest.fixture(scope="session")
def bpe_tokenizer() -> Tokenizer:
    return train_tokenizer(SENTENCES, "bpe:320")


@pytest.fixture(scope="session")
def spm_tokenizer() -> Tokenizer:
    return train_tokenizer(SENTENCES, "spm:480")


@pytest.fixture(scope="session")
def hf(tmp_path_factory: pytest.TempPathFactory, bpe_tokenizer: Tokenizer) -> Path:
    """A HuggingFace directory with a byte-level BPE."""
    path = tmp_path_factory.mktemp("source") / "hf"
    save_model_directory(small_model(bpe_tokenizer), path, bpe_tokenizer)
    return path


@pytest.fixture(scope="session")
def hf_spm(tmp_path_factory: pytest.TempPathFactory, spm_tokenizer: Tokenizer) -> Path:
    """A HuggingFace directory with a SentencePiece tokenizer."""
    path = tmp_path_factory.mktemp("source") / "hf"
    save_model_directory(small_model(spm_tokenizer), path, spm_tokenizer)
    return path


def run_conversion(source: Path, destination: Path, **settings: Any) -> dict[str, Any]:
    """`convert` by its settings' names."""
    return convert(Conversion(source, destination, **settings))


@pytest.fixture
def no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where neither transformers nor xllamacpp is installed."""
    monkeypatch.setattr(
        runtimes,
        "runtime_of",
        lambda target: (
            (runtimes.RUNTIMES[target][0], False) if target in runtimes.RUNTIMES else None
        ),
    )


@pytest.fixture
def worker_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers answers in this process, which imports it once for all tests."""

    def run(
        command: list[str], input: bytes, **settings: Any
    ) -> subprocess.CompletedProcess[bytes]:
        request = json.loads(input)
        Path(request["answer"]).write_text(json.dumps(runtime_worker.run_transformers(request)))
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(runtimes.subprocess, "run", run)

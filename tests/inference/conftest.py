"""A byte tokenizer and tiny random models: everything of a language model but its knowledge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from llamita.config import ModelConfig
from llamita.inference.engine import Engine
from llamita.inference.lm import LM
from llamita.model.transformer import Transformer
from llamita.tokenizer.base import Tokenizer

EOS, BOS, VOCAB = 256, 257, 258


class ByteTokenizer(Tokenizer):
    """Each byte of UTF-8 is a token; 256 is EOS, 257 BOS."""

    kind = "byte"
    vocab_size = VOCAB
    bos_token_id = BOS
    eos_token_id = EOS
    pad_token_id = None
    special_tokens = {"<eos>": EOS, "<bos>": BOS}
    lossy = None
    strips_leading_space = False
    eos_suffix: list[int] = []

    def __init__(self, bos_prefix: tuple[int, ...] = ()) -> None:
        self.bos_prefix = list(bos_prefix)

    def encode_batch(self, texts):
        return [list(text.encode("utf-8")) for text in texts]

    def _token_surface(self, token_id: int) -> bytes:
        return bytes([token_id])

    def definition(self) -> dict[str, Any]:
        return {}

    def files(self) -> dict[str, bytes]:
        raise NotImplementedError


def make_model(**changes: Any) -> Transformer:
    """Random weights of unit scale, so that the next token is anything but certain or uniform."""
    settings: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 48,
    } | changes
    torch.manual_seed(0)
    model = Transformer(ModelConfig(**settings))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, parameter.shape[1] ** -0.5 * 1.5, generator=generator)
    return model.eval()


class ScriptBackend:
    """Stands in for a model: says the ids of a script, whatever was asked, then repeats."""

    slots = capacity = weights_version = 0
    max_segment = 512

    def __init__(self, script: list[int], prompt_length: int, config: ModelConfig) -> None:
        self.config = config
        self.script = script
        self.prompt_length = prompt_length

    def slot_bytes(self, capacity):
        return 1

    def resize(self, slots, capacity):
        self.slots, self.capacity = slots, capacity

    def prefill(self, segments):
        positions = [
            place for part in segments for place in range(part.end - part.num_logits, part.end)
        ]
        return self._logits(positions)

    def decode(self, slots, token_ids, positions):
        return self._logits(positions)

    def reusable(self, written, shared):
        return shared

    def copy(self, source, target, length):
        pass

    def _logits(self, positions):
        logits = np.zeros((len(positions), self.config.vocab_size), np.float32)
        for row, position in enumerate(positions):
            place = (position + 1 - self.prompt_length) % len(self.script)
            logits[row, self.script[place]] = 9.0
        return logits


def scripted_lm(script: list[int], prompt_length: int, tokenizer: Tokenizer, **config: Any) -> LM:
    """An LM that answers any prompt of this length with a script."""
    lm = LM(make_model(**config), tokenizer)
    lm._engine = Engine(ScriptBackend(script, prompt_length, lm.config), tokenizer)
    return lm


@pytest.fixture
def tokenizer() -> ByteTokenizer:
    return ByteTokenizer()


@pytest.fixture(scope="session")
def model() -> Transformer:
    return make_model()


@pytest.fixture
def lm(model: Transformer, tokenizer: ByteTokenizer) -> LM:
    return LM(model, tokenizer)


@pytest.fixture
def scripted() -> Callable[..., LM]:
    """An LM that answers the prompt "?" with the given text (or ids), then repeats it."""

    def make(script: str | list[int], **config: Any) -> LM:
        ids = list(script.encode()) if isinstance(script, str) else script
        return scripted_lm(ids, 1, ByteTokenizer(), **config)

    return make


@pytest.fixture
def new_model() -> Callable[..., Transformer]:
    return make_model


@pytest.fixture
def new_tokenizer() -> Callable[..., ByteTokenizer]:
    return ByteTokenizer

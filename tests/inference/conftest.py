"""A byte tokenizer and tiny random models: everything of a language model but its knowledge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from llamita.config import ModelConfig
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


class Scripted(torch.nn.Module):
    """Stands in for a model: says the bytes of a script, whatever was asked, then repeats."""

    def __init__(self, script: list[int], prompt_length: int, **config: Any) -> None:
        super().__init__()
        self.config = make_model(**config).config
        self.lm_head = torch.nn.Linear(1, 1)
        self.script = script
        self.prompt_length = prompt_length

    def forward(self, input_ids, positions=None, cache=None, last_positions=None, row_lengths=None):
        place = positions[:, -1:] + 1 - self.prompt_length
        script = torch.tensor(self.script)
        return (
            torch.nn.functional.one_hot(script[place % len(script)], self.config.vocab_size) * 9.0
        )


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
        return LM(Scripted(ids, 1, **config), ByteTokenizer())

    return make


@pytest.fixture
def new_model() -> Callable[..., Transformer]:
    return make_model


@pytest.fixture
def new_tokenizer() -> Callable[..., ByteTokenizer]:
    return ByteTokenizer

"""A tokenizer and tiny models with weights large enough that nothing is nearly uniform."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from llamita.config import ModelConfig
from llamita.model.transformer import Transformer
from llamita.tokenizer import train_tokenizer
from llamita.tokenizer.base import Tokenizer

TEXT = (
    "Question: What is the capital of France?\nAnswer: Paris, London, Rome or Madrid — “é” 🦙 Ծ. "
    "A. B. C. D. the red fox ran over the lazy dog and the dog slept. "
)


@pytest.fixture(scope="session")
def word_tokenizer() -> Tokenizer:
    return train_tokenizer([TEXT * 4], "bpe:350")


@pytest.fixture(scope="session")
def random_model(word_tokenizer: Tokenizer) -> Callable[..., Transformer]:
    def make(seed: int = 0, context: int = 128) -> Transformer:
        return random_transformer(word_tokenizer, context, seed)

    return make


def random_transformer(tokenizer: Tokenizer, context: int, seed: int = 0) -> Transformer:
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size + 3,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=context,
    )
    torch.manual_seed(seed)
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.5)
    return model.eval()

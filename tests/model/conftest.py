"""Small models whose weights make faults visible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from llamita.config import ModelConfig
from llamita.model.transformer import Transformer

MakeModel = Callable[..., Transformer]


@pytest.fixture
def make_model() -> MakeModel:
    """A maker of two-layer models with spread weights; keywords are `ModelConfig` fields."""

    def make(**fields: Any) -> Transformer:
        shape: dict[str, Any] = {
            "vocab_size": 53,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
        }
        model = Transformer(ModelConfig(**{**shape, **fields})).eval()
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                if name.endswith("norm.weight"):
                    parameter.copy_(1 + 0.3 * noise)
                else:
                    parameter.copy_(noise / (parameter.shape[-1] ** 0.5 if noise.dim() > 1 else 2))
        return model

    return make


@pytest.fixture
def ids() -> torch.Tensor:
    """Token ids [3, 40]."""
    return torch.randint(0, 53, (3, 40), generator=torch.Generator().manual_seed(1))

"""Which low-rank adapters a run trains, where it trains no weights of the model itself."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from llamita.config import ModelConfig
from llamita.training.settings.table import Table

Target = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""The matrices of a layer."""
TARGETS: tuple[Target, ...] = get_args(Target)


class Lora(Table):
    """Low-rank adapters (arXiv:2106.09685) in place of training every weight.

    Each of the `targets` of every layer gets two matrices of `rank`, whose product, times `alpha` /
    rank, is added to its frozen weight. `dropout` is of what they read. `tokens` are ids whose rows
    of the tables are trained as well: those that the model was not made with.
    """

    rank: int = Field(ge=1)
    alpha: float = Field(32.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: tuple[Target, ...] = Field(TARGETS, min_length=1)
    tokens: tuple[int, ...] = ()

    def values(self, config: ModelConfig) -> int:
        """How many numbers the adapters of a model have."""
        hidden, inner = config.hidden_size, config.intermediate_size
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        sides = {
            "q_proj": hidden + queries,
            "k_proj": hidden + keys,
            "v_proj": hidden + keys,
            "o_proj": queries + hidden,
            "gate_proj": hidden + inner,
            "up_proj": hidden + inner,
            "down_proj": inner + hidden,
        }
        return config.num_hidden_layers * self.rank * sum(sides[name] for name in self.targets)

    def trained_values(self, config: ModelConfig) -> int:
        """Those, and the numbers in the rows of `tokens`."""
        tables = 1 if config.tie_word_embeddings else 2
        return self.values(config) + tables * len(self.tokens) * config.hidden_size

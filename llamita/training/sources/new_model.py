"""The model a run begins with: fresh weights or another model's, whole or in shards.

A model that is too large for one rank is never whole on any: it is described on the meta device,
sharded there, and only then gets memory and, one tensor at a time, its numbers. They are the same
to the bit.
"""

from __future__ import annotations

import torch

from llamita.config import ModelConfig
from llamita.model import Transformer
from llamita.training.ranks.sharding import shard
from llamita.training.ranks.world import World
from llamita.training.sources.initial import InitialModel


def new_model(config: ModelConfig, seed: int, start: InitialModel | None) -> Transformer:
    """A whole model in main memory, with the weights of `start` or fresh ones."""
    if start is not None:
        return start.build()
    return Transformer(config).initialize(seed, zero_outputs=True)


def new_sharded_model(
    config: ModelConfig,
    seed: int,
    start: InitialModel | None,
    device: str,
    world: World,
    precision: str = "float32",
) -> Transformer:
    """The same in shards over the ranks, on their `device`; all ranks together.

    precision: of the run's products, for which layers are gathered.
    """
    with torch.device("meta"):
        model = Transformer(config)
    shard(model, device, world, precision)
    model.to_empty(device=device)
    if config.tie_word_embeddings:  # each got memory of its own
        model.lm_head.weight = model.model.embed_tokens.weight
    if start is not None:
        start.fill(model)
        return model
    return model.initialize(seed, zero_outputs=True)

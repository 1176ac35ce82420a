"""The model a run begins with: fresh weights or another model's, whole or in shards.

A model that is too large for one rank is never whole on any: it is described on the meta device,
sharded there, and only then gets memory and, one tensor at a time, its numbers. They are the same
to the bit.
"""

from __future__ import annotations

import torch

from llamita.config import ModelConfig
from llamita.errors import TrainingError
from llamita.formats.detect import find_model
from llamita.formats.peft import is_adapter
from llamita.model import Transformer
from llamita.model.lora import add_adapters
from llamita.training.ranks.sharding import shard
from llamita.training.ranks.world import World
from llamita.training.settings.lora import Lora
from llamita.training.sources.initial import InitialModel


def new_model(
    config: ModelConfig, seed: int, start: InitialModel | None, lora: Lora | None = None
) -> Transformer:
    """A whole model in main memory, with the weights of `start` or fresh ones.

    With `lora` these are frozen, and adapters alone are trained.

    Raises:
        TrainingError: they are not for this model, or for what it is to learn.
    """
    if start is not None:
        model = start.build()
    else:
        model = Transformer(config).initialize(seed, zero_outputs=True)
    if lora is not None:
        _check_rows(lora, config, start)
        add_adapters(
            model,
            lora.targets,
            rank=lora.rank,
            alpha=lora.alpha,
            dropout=lora.dropout,
            tokens=lora.tokens,
            seed=seed,
        )
    return model


def _check_rows(lora: Lora, config: ModelConfig, start: InitialModel | None) -> None:
    """Refuse what would leave rows of tables untrained that nobody trained before, and a base that
    nobody could put the adapters onto."""
    if start is not None and is_adapter(find_model(start.path)):
        raise TrainingError(
            f"{start.path} is an adapter itself: the new one would belong to two folders together.",
            hint=f"Merge it first: llamita merge {start.path} -o DIR, and begin with DIR.",
        )
    beyond = [token for token in lora.tokens if not 0 <= token < config.vocab_size]
    if beyond:
        raise TrainingError(
            f"lora.tokens has {beyond[0]}; ids go from 0 to {config.vocab_size - 1:,}."
        )
    if start is None:
        return
    rows = start.rows
    if rows.relation == "other":
        raise TrainingError(
            "the data's tokenizer is not the model's, and lora leaves the rows of tokens as they "
            "are.",
            hint="Prepare the data with the model's tokenizer, or train without lora.",
        )
    new = set(rows.untrained) - set(lora.tokens)
    if new:
        raise TrainingError(
            f"the data's tokenizer has {len(new):,} tokens that the model never saw, whose rows "
            "lora would leave untrained.",
            hint=f"Train them as well: --set 'lora.tokens={sorted({*new, *lora.tokens})}'",
        )


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

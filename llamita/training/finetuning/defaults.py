"""What a recipe of fine-tuning says where nobody says otherwise."""

from __future__ import annotations

import math
from typing import Any

from llamita.config import ModelConfig
from llamita.training.settings.learning_rates import best_batch, fine_tuning_rate, power_of_two
from llamita.training.settings.recipe import Length, Recipe
from llamita.training.settings.settling import with_defaults

EPOCHS = 3.0
TABLES: dict[str, dict[str, Any]] = {
    # A model that AdamW trained is best trained on by AdamW (arXiv:2502.16982, section 3.4).
    "optimizer": {"name": "adamw", "weight_decay": 0.01},
    "schedule": {"kind": "cosine", "warmup_fraction": 0.05},
}
"""The settings that stand behind a file's and a command's."""

_MICRO_BATCH = 4096  # tokens, so that a step's memory stays that of pretraining


def fill_in(
    requested: Recipe, config: ModelConfig, context_length: int, rows: int, epochs: float | None
) -> Recipe:
    """The recipe with a batch, a length and a rate.

    The batch is Step Law's for all the tokens that will be read (arXiv:2503.04715). Rows hold
    whole conversations, which do not see each other.

    Args:
        config: the shape of the model that is begun with.
        rows: of one epoch.
        epochs: how often to read them; None: `EPOCHS`, unless the recipe has a length.
    """
    times = epochs or EPOCHS
    tokens = times * rows * context_length
    most = 1 << (rows.bit_length() - 1)  # a step reads no row twice
    step = min(power_of_two(best_batch(tokens) / context_length), most)
    sequences = min(step, power_of_two(_MICRO_BATCH / context_length))
    recipe = with_defaults(
        requested,
        {
            "batch": {
                "context_length": context_length,
                "packing": "documents",
                "sequences": sequences,
                "accumulation": max(1, step // sequences),
            },
        },
    )
    if recipe.optimizer.learning_rate == "auto":
        rate = fine_tuning_rate(config, adapters=recipe.lora is not None)
        optimizer = recipe.optimizer.model_copy(update={"learning_rate": rate})
        recipe = recipe.model_copy(update={"optimizer": optimizer})
    if epochs is not None or "length" not in requested.model_fields_set:
        batch = recipe.batch
        steps = math.ceil(times * rows / (batch.sequences * batch.accumulation))
        recipe = recipe.model_copy(update={"length": Length(steps=steps)})
    return recipe

"""Writing down what a recipe left open once it is known."""

from __future__ import annotations

from llamita.config import ModelConfig
from llamita.training.recipe import Length, Recipe
from llamita.training.scaling import peak_learning_rate


def with_steps(recipe: Recipe, config: ModelConfig, steps: int) -> Recipe:
    """The recipe of a run of `steps`, with the learning rate that follows where it was open."""
    recipe = recipe.model_copy(update={"length": Length(steps=steps)})
    if recipe.optimizer.learning_rate != "auto":
        return recipe
    rate = peak_learning_rate(
        config,
        steps,
        recipe.tokens_per_step,
        recipe.optimizer.name,
        is_trained=recipe.init is not None,
    )
    optimizer = recipe.optimizer.model_copy(update={"learning_rate": rate})
    return recipe.model_copy(update={"optimizer": optimizer})


CHANGEABLE = ("parallel", "check_memory", "activation_checkpointing")
"""Settings of `machine` that change where a run's numbers lie and not what they are: any call of a
run may have its own."""


def with_changeable(recipe: Recipe, requested: Recipe | None) -> Recipe:
    """The recipe of a run with those settings as they are asked for now, if any are."""
    if requested is None:
        return recipe
    asked = {name: getattr(requested.machine, name) for name in CHANGEABLE}
    return recipe.model_copy(update={"machine": recipe.machine.model_copy(update=asked)})

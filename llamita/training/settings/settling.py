"""Writing down what a recipe left open once it is known."""

from __future__ import annotations

from typing import Any

from llamita.config import ModelConfig
from llamita.training.settings.learning_rates import peak_learning_rate
from llamita.training.settings.recipe import Length, Recipe


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


def with_defaults(recipe: Recipe, defaults: dict[str, dict[str, Any]]) -> Recipe:
    """The recipe with these settings, by table, where it does not say them itself."""
    tables = {}
    for name, settings in defaults.items():
        table = getattr(recipe, name)
        missing = {k: v for k, v in settings.items() if k not in table.model_fields_set}
        tables[name] = table.model_copy(update=missing)
    return recipe.model_copy(update=tables)


CHANGEABLE = {
    "machine": ("parallel", "check_memory", "activation_checkpointing"),
    "checkpoints": ("keep",),
}
"""Settings, by their table, that change where a run's numbers lie and not what they are: any call
of a run may have its own."""


def asks_for_changeable_alone(requested: Recipe) -> bool:
    """Whether a request sets such settings and leaves all others as they are."""
    asked = requested.model_dump(exclude_unset=True)
    return bool(asked) and all(
        isinstance(values, dict) and set(values) <= set(CHANGEABLE.get(table, ()))
        for table, values in asked.items()
    )


def with_changeable(recipe: Recipe, requested: Recipe | None) -> Recipe:
    """The recipe of a run with those settings as they are asked for now, if any are.

    A request that has the run's other settings too is the whole of what is wanted: what it does
    not set has its default.
    """
    if requested is None:
        return recipe
    asked = requested.model_dump(exclude_unset=asks_for_changeable_alone(requested))
    tables = {}
    for table, names in CHANGEABLE.items():
        changes = {name: value for name, value in asked.get(table, {}).items() if name in names}
        tables[table] = getattr(recipe, table).model_copy(update=changes)
    return recipe.model_copy(update=tables)

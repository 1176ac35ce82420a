"""A recipe whose run takes seconds."""

from __future__ import annotations

from llamita.training.settings.recipe import Recipe
from llamita.training.settings.recipe_file import build_recipe


def small_recipe(*assignments: str, steps: int = 6) -> Recipe:
    """A run of seconds: two narrow layers, short context, float32, no compilation."""
    settings = [
        f"length.steps={steps}",
        "batch.context_length=32",
        "batch.sequences=4",
        "watch.validations=2",
        "watch.validation_tokens=256",
        "watch.log_every=1",
        "watch.sample_tokens=4",
        "machine.precision=float32",
        "machine.compile=off",
    ]
    if not any(text.startswith(("init=", "model.params=")) for text in assignments):
        settings.append("model.preset=tiny")
    return build_recipe(None, [*settings, *assignments], {})

"""What a recipe leaves to the machine, decided before the first step by a look at it."""

from __future__ import annotations

from llamita.config import ModelConfig
from llamita.model.placement import choose_device
from llamita.training.machine.determinism import fix_workspace
from llamita.training.machine.precision import choose_precision
from llamita.training.records.observer import Observer
from llamita.training.settings.recipe import Recipe
from llamita.training.steps.compiling import choose_compilation

_USUAL_FLOPS = {"cpu": 2e11, "cuda": 5e13}


def decide_machine(recipe: Recipe, config: ModelConfig, observer: Observer) -> Recipe:
    """The recipe with a device, a precision, and steps that are compiled or not.

    Raises:
        ConfigError: the machine lacks the device that is asked for.
    """
    wanted = recipe.machine
    if wanted.deterministic:
        fix_workspace()  # before the products that are timed here
    device = choose_device(None if wanted.device == "auto" else wanted.device)
    precision, reason = choose_precision(wanted.precision, device)
    seconds = _expected_seconds(recipe, config, device.type)
    compiling, why = choose_compilation(wanted.compile, device, seconds)
    observer.say(
        f"computing on {device.type} in {precision} ({reason}), compilation {compiling} ({why})"
    )
    settled = {"device": device.type, "precision": precision, "compile": compiling}
    return recipe.model_copy(update={"machine": wanted.model_copy(update=settled)})


def _expected_seconds(recipe: Recipe, config: ModelConfig, device: str) -> float:
    """A rough guess before anything was measured: 6 operations a parameter and token."""
    if recipe.length.minutes is not None:
        return 60 * recipe.length.minutes
    tokens = recipe.length.tokens or (recipe.length.steps or 0) * recipe.tokens_per_step
    return 6 * config.count_parameters() * tokens / _USUAL_FLOPS.get(device, 1e12)

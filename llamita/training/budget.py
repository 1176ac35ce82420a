"""Minutes into steps: how many optimizer steps fit a time, measured before the first one."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from statistics import median

import torch

from llamita.training.trainer import SILENT, Trainer
from llamita.training.validation import validate

_WARMUP_STEPS = 3
_MEASURED_SECONDS = 4.0
_LEAST_MEASURED = 5
_PROVISIONAL_STEPS = 1_000_000


def steps_that_fit(trainer: Trainer, minutes: float, already_spent: float) -> int:
    """Steps of `trainer` that fit `minutes`, of which `already_spent` seconds are gone.

    Takes real steps, compilation included, and puts everything back as it was, so that the run
    that follows depends on its recipe alone. Validations and their samples are paid for.
    """
    started = time.perf_counter()
    recipe = trainer.recipe
    trainer.settle_steps(_PROVISIONAL_STEPS)
    observer, trainer.observer = trainer.observer, replace(SILENT, say=trainer.observer.say)
    weights = copy.deepcopy(trainer.model.state_dict())
    loader = trainer.loader.state_dict()
    optimizers = [copy.deepcopy(optimizer.state_dict()) for optimizer in trainer.optimizers]

    step_seconds = _measure_steps(trainer)
    look_seconds = _measure_look(trainer)

    trainer.model.load_state_dict(weights)
    trainer.loader.load_state_dict(loader)
    for optimizer, state in zip(trainer.optimizers, optimizers, strict=True):
        optimizer.load_state_dict(state)
        optimizer.zero_grad(set_to_none=True)
    trainer.step = 0
    trainer.recipe, trainer.observer = recipe, observer
    torch.manual_seed(recipe.seed)

    spent = already_spent + time.perf_counter() - started
    left = 60 * minutes - spent - trainer.recipe.watch.validations * look_seconds
    return max(1, int(left / step_seconds))


def _measure_steps(trainer: Trainer) -> float:
    for _ in range(_WARMUP_STEPS):
        trainer.take_step()
    seconds: list[float] = []
    while len(seconds) < _LEAST_MEASURED or sum(seconds) < _MEASURED_SECONDS:
        started = time.perf_counter()
        trainer.take_step()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def _measure_look(trainer: Trainer) -> float:
    """What a validation and a checkpoint cost."""
    if not trainer.validation:
        return 0.0
    started = time.perf_counter()
    validate(trainer.model, trainer.loss_sum, trainer.validation, trainer.device)
    return time.perf_counter() - started

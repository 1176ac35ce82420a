"""Minutes into steps: how many optimizer steps fit a time, measured before the first one."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from llamita.files import temporary_prefix
from llamita.training.machine.determinism import seed_rank
from llamita.training.ranks.sharding import give_up_whole
from llamita.training.ranks.world import World
from llamita.training.records.observer import SILENT
from llamita.training.trainer import Trainer

_WARMUP_STEPS = 2
_MEASURED_SECONDS = 4.0
_LEAST_MEASURED = 5
_PROVISIONAL_STEPS = 1_000_000


def steps_that_fit(trainer: Trainer, minutes: float, already_spent: float) -> int:
    """Steps of `trainer` that fit `minutes`, of which `already_spent` seconds are gone.

    Takes real steps, validates, samples and saves once, and puts everything back as it was, so
    that the run that follows depends on its recipe alone. The steps get at least half of the time,
    even where that makes the whole longer than asked. Of several ranks the first has the clock.
    """
    started = time.perf_counter()
    trainer.compile()
    recipe, observer, run = trainer.recipe, trainer.observer, trainer.run_directory
    # In main memory: a GPU may not have the room.
    weights = {name: own.to("cpu", copy=True) for name, own in _weights_of(trainer.model)}
    loader = trainer.loader.state_dict()
    optimizers = [copy.deepcopy(optimizer.state_dict()) for optimizer in trainer.optimizers]
    try:
        trainer.settle_steps(_PROVISIONAL_STEPS)
        trainer.observer = SILENT
        with (
            trainer.computing(),
            _scratch(run, trainer.world) as scratch,
        ):
            step_seconds = _measure_steps(trainer)
            trainer.run_directory = scratch
            look_seconds = _measure_look(trainer)
    finally:
        trainer.recipe, trainer.observer, trainer.run_directory = recipe, observer, run
    for name, own in _weights_of(trainer.model):
        own.copy_(weights[name])
    trainer.loader.load_state_dict(loader)
    for optimizer, state in zip(trainer.optimizers, optimizers, strict=True):
        optimizer.load_state_dict(state)
    trainer.step = 0
    trainer.best.reset()
    trainer.guard.load_state_dict({})
    seed_rank(recipe.seed, trainer.world.rank)

    budget = 60 * minutes
    spent = already_spent + time.perf_counter() - started
    every = recipe.watch.validate_every
    looks = 0 if every else recipe.watch.validations
    left = budget - spent - looks * look_seconds
    if every:  # each step carries its share of the looks
        step_seconds += look_seconds / every
    if left < budget / 2:
        observer.say(
            f"getting ready took {spent:.0f} s and a validation takes {look_seconds:.1f} s: more "
            f"than half of {budget:.0f} s. Training gets {budget / 2:.0f} s all the same"
        )
        left = budget / 2
    return trainer.world.from_first(max(1, int(left / step_seconds)))


def _weights_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What this rank has of each parameter by name: all of it, or its shard."""
    give_up_whole(model)
    for name, parameter in model.named_parameters():
        values = parameter.detach()
        yield name, values.to_local() if isinstance(values, DTensor) else values


@contextmanager
def _scratch(run: Path, world: World) -> Iterator[Path]:
    """A folder in the run for all ranks, which goes again."""
    prefix = temporary_prefix("measuring")
    with ExitStack() as stack:
        with world.agreed():
            if world.is_first:
                made = TemporaryDirectory(prefix=prefix, suffix=".tmp", dir=run)
                run = Path(stack.enter_context(made))
        yield world.from_first(run)


def _measure_steps(trainer: Trainer) -> float:
    for _ in range(_WARMUP_STEPS):
        trainer.take_step()
    seconds: list[float] = []
    while trainer.world.from_first(
        len(seconds) < _LEAST_MEASURED or sum(seconds) < _MEASURED_SECONDS
    ):
        started = time.perf_counter()
        trainer.take_step()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def _measure_look(trainer: Trainer) -> float:
    """Seconds of a validation with its sample and checkpoint."""
    with closing(trainer.open_log(0)) as log:
        started = time.perf_counter()
        trainer.look(log)
        trainer.save(log)
        trainer.writer.wait()
        return time.perf_counter() - started

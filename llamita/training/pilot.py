"""Short real runs, measured: what a step, a validation and getting ready take, and where it ends.

They go through `train` itself, in a folder that is thrown away, so that what is measured is what a
run does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from llamita.config import ModelConfig
from llamita.errors import Interrupted
from llamita.evaluation.machine import peak_memory
from llamita.formats.detect import RECIPE
from llamita.training.manifest import RunManifest
from llamita.training.metrics import METRICS_NAME, read_metrics
from llamita.training.observer import Observer
from llamita.training.recipe import Recipe, Source
from llamita.training.recipe_file import load_recipe
from llamita.training.run import train

_FEW_STEPS = 20  # of fewer, one that was disturbed would spoil the mean


@dataclass(frozen=True)
class Measured:
    """A finished short run.

    Attributes:
        config, recipe: its shape and its settings, nothing left open.
        step_seconds: of a step; the first one, which makes room, is left out.
        startup_seconds: before the first step: data, model, compiling.
        look_seconds: of a validation with its sample and save.
        bits_per_byte: on the held-out rows at the end; None where nothing is held out.
        peak_memory: bytes that this process held at most so far; None where nobody tells.
    """

    config: ModelConfig
    recipe: Recipe
    step_seconds: float
    startup_seconds: float
    look_seconds: float
    bits_per_byte: float | None
    peak_memory: int | None

    @property
    def tokens(self) -> int:
        return (self.recipe.length.steps or 0) * self.recipe.tokens_per_step


def measure(sources: Sequence[Source], recipe: Recipe, work: Path) -> Measured:
    """Train as `recipe` says, which has a number of steps and one validation, below `work`.

    Raises:
        LlamitaError: as `train` does.
        KeyboardInterrupt: Ctrl-C.
    """
    seconds: list[float] = []
    ends: list[float] = []
    started = time.perf_counter()

    def note(rate: float) -> None:
        ends.append(time.perf_counter())
        seconds.append(recipe.tokens_per_step / rate)

    with TemporaryDirectory(prefix="pilot-", dir=work) as folder:
        run = Path(folder) / "run"
        observer = Observer(
            say=lambda text: None, on_step=lambda step, steps, loss, rate: note(rate)
        )
        try:
            train(sources, run, recipe, observer=observer)
        except Interrupted as error:
            raise KeyboardInterrupt from error
        finished = time.perf_counter()
        last = read_metrics(run / METRICS_NAME)[-1]
        config = RunManifest.load(run).shape
        settled = load_recipe(run / RECIPE)
    if config is None:
        raise ValueError("the run did not write down its shape")
    step_seconds = median(seconds[1:] or seconds)
    if len(ends) > _FEW_STEPS:  # with what lies between steps
        step_seconds = (ends[-1] - ends[0]) / (len(ends) - 1)
    return Measured(
        config=config,
        recipe=settled,
        step_seconds=step_seconds,
        startup_seconds=ends[0] - seconds[0] - started,
        look_seconds=finished - ends[-1],
        bits_per_byte=last.get("validation_bits_per_byte"),
        peak_memory=peak_memory(settled.machine.device),
    )

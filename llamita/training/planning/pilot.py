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
from llamita.formats.detect import RECIPE
from llamita.training.machine.disk import DiskError
from llamita.training.records.manifest import RunManifest
from llamita.training.records.metrics import METRICS_NAME, read_metrics
from llamita.training.records.observer import Observer
from llamita.training.run import train
from llamita.training.settings.recipe import Recipe, Source
from llamita.training.settings.recipe_file import load_recipe

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
    """

    config: ModelConfig
    recipe: Recipe
    step_seconds: float
    startup_seconds: float
    look_seconds: float
    bits_per_byte: float | None

    @property
    def tokens(self) -> int:
        return (self.recipe.length.steps or 0) * self.recipe.tokens_per_step


def measure(sources: Sequence[Source], recipe: Recipe, work: Path) -> Measured:
    """Train as `recipe` says, which has a number of steps and one validation, below `work`. The
    data is taken as it is: whoever plans has checked it once.

    Raises:
        LlamitaError: as `train` does.
        KeyboardInterrupt: Ctrl-C, however late.
    """
    checkpoints = recipe.checkpoints.model_copy(update={"keep": 1})
    recipe = recipe.model_copy(update={"checkpoints": checkpoints})
    seconds: list[float] = []
    ends: list[float] = []
    late_stops: list[bool] = []
    started = time.perf_counter()

    def note(rate: float) -> None:
        ends.append(time.perf_counter())
        seconds.append(recipe.tokens_per_step / rate)

    with TemporaryDirectory(prefix="pilot-", dir=work) as folder:
        run = Path(folder) / "run"
        observer = Observer(
            say=lambda text: None,
            on_step=lambda step, steps, loss, rate: note(rate),
            on_late_stop=lambda: late_stops.append(True),
        )
        try:
            train(sources, run, recipe, is_checked=True, observer=observer)
        except Interrupted as error:
            raise KeyboardInterrupt from error
        except DiskError as error:
            raise DiskError(
                f"a pilot run has no room in {work}: {error.message}",
                hint="Name a folder that has more in the environment: TMPDIR=FOLDER",
            ) from error
        if late_stops:
            raise KeyboardInterrupt
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
    )

"""Which model fits a text, a machine and a time, and what will come of it.

A few shapes are timed and a pilot run is made on the text itself, all within two minutes. Of all
sizes the one is taken whose forecast is best for the tokens that this machine can train it on in
the time: a larger model learns more from each token, and sees fewer. Of a long time, which the law
knows nothing of, a model also has room for so many tokens only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llamita.errors import DataError, TrainingError
from llamita.evaluation.machine import matrix_peak
from llamita.model.placement import choose_device
from llamita.training.memory.accounting import estimate_disk, estimate_memory
from llamita.training.planning.data import checked_data
from llamita.training.planning.forecast import Forecast, Training, shipped_law
from llamita.training.planning.pilot import Measured, measure
from llamita.training.planning.plan import Plan
from llamita.training.planning.schedule import Way, best_schedule
from llamita.training.planning.shapes import Candidate, Shape, Shapes
from llamita.training.planning.speed import SpeedModel, Timed
from llamita.training.settings.learning_rates import inner_parameters
from llamita.training.settings.recipe import Source

MEASURE_SECONDS = 112.0
"""For all of a plan: what began in time ends within two minutes."""

_TIMED_STEPS = 4
_LONGEST_TIMED_STEP = 4.0  # seconds
_FURTHER = 5.0  # times the parameters of the first timed shape, but for tables, in the second
_PILOT_STEPS = 40  # fewer teach nothing that could be continued, whatever time is left
_SHORT_PILOT_STEPS = 25
_COMPILE_FROM = 240.0  # seconds of a run: a shorter one does not win compiling back
_COMPILING_SECONDS = 25.0  # left for it in the time of the pilots


class Planner:
    """Measures a machine on a text, and plans.

    Args:
        sources: the DATA to measure on; of a large text, of a sample of it.
        text_share: what part of the text that is.
        start_seconds: what a command takes before it does anything: Python, PyTorch.
        measure_seconds: how long measuring may take.
        work: a folder for what is thrown away.
        say: takes lines on what is going on.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        text_share: float = 1.0,
        start_seconds: float = 0.0,
        measure_seconds: float = MEASURE_SECONDS,
        work: Path,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._deadline = time.monotonic() + measure_seconds
        self._sources = sources
        self._work = work
        self._say = say
        self._data, checking_seconds = checked_data(sources, say)
        self._start_seconds = start_seconds + checking_seconds
        self._unique_tokens = self._data.train_tokens / text_share
        self._machine: dict[str, Any] = {"compile": "off"}
        self._timed: list[Timed] = []
        self._startup_seconds = 0.0

    def plan(self, budget_seconds: float) -> Plan:
        """The best run for so many seconds.

        Raises:
            TrainingError: not even the smallest model can be trained in that time.
            LlamitaError: the data cannot be trained on.
        """
        shapes, chosen = self._choose(budget_seconds)
        shorter, pilot = self._pilots(shapes, chosen, budget_seconds)
        return self._settle(shapes, chosen, shorter, pilot, budget_seconds)

    def choose(self, budget_seconds: float) -> Candidate:
        """The best shape for so many seconds, without a pilot: a matter of a few seconds.

        Raises:
            LlamitaError: as `plan` does.
        """
        return self._choose(budget_seconds)[1]

    def _choose(self, budget_seconds: float) -> tuple[Shapes, Candidate]:
        """Time two shapes, and the one that seems best, which may make another seem so."""
        vocab_size, device = self._data.tokenizer.vocab_size, choose_device(None).type
        peak = matrix_peak("float32", device)
        shapes = Shapes(vocab_size, budget_seconds, self._unique_tokens, peak, device)
        for shape in shapes.to_time(_FURTHER):
            self._time(shape)
        for_steps = 0.9 * budget_seconds - self._start_seconds - self._startup_seconds
        chosen = shapes.best(self._speed, for_steps)
        if chosen is None:
            raise _too_short(budget_seconds, self._speed, shapes.all[0])
        if all(one.config != chosen.shape.config for one in self._timed):
            self._time(chosen.shape)
            chosen = shapes.best(self._speed, for_steps) or chosen
        return shapes, chosen

    @property
    def _speed(self) -> SpeedModel:
        return SpeedModel.fit(self._timed)

    def _expected_step(self, shape: Shape) -> float:
        recipe = shape.recipe(_TIMED_STEPS)
        return self._speed.step_seconds(shape.config, recipe) if self._timed else 0.0

    def _time(self, shape: Shape) -> None:
        """Take a few steps, if they are quick enough, and note what the machine settled on."""
        if self._expected_step(shape) > _LONGEST_TIMED_STEP:
            return
        recipe = shape.recipe(_TIMED_STEPS, watch=_FAST_LOOK, machine=self._machine)
        measured = measure(self._sources, recipe, self._work)
        self._machine = {
            "compile": "off",
            "precision": measured.recipe.machine.precision,
            "device": measured.recipe.machine.device,
        }
        # The first is the longest: a new process, too, loads and measures what later ones have.
        self._startup_seconds = max(self._startup_seconds, measured.startup_seconds)
        self._note(shape, measured)
        self._say(
            f"{measured.config.count_parameters():,} parameters: "
            f"{measured.recipe.tokens_per_step / measured.step_seconds:,.0f} tokens/s"
        )

    def _note(self, shape: Shape, measured: Measured) -> None:
        """Remember a shape's time in place of an older one."""
        self._timed = [one for one in self._timed if one.config != shape.config]
        self._timed.append(Timed(shape.config, measured.recipe, measured.step_seconds))

    def _pilots(
        self, shapes: Shapes, chosen: Candidate, budget_seconds: float
    ) -> tuple[Measured | None, Measured]:
        """Whole runs of the chosen shape, or of the largest that can take enough steps: a short
        one of a fifth of the time, where that is enough, and one of what is left."""
        compiles = budget_seconds >= _COMPILE_FROM and _has_compiler(self._machine["device"])
        left = self._deadline - time.monotonic() - 2 * self._startup_seconds
        left = 0.9 * (left - (_COMPILING_SECONDS if compiles else 0.0))
        shape = shapes.largest(chosen.shape, self._speed, left / _PILOT_STEPS)
        step = self._expected_step(shape)
        watch = {"validations": 1, "validation_tokens": validation_tokens(budget_seconds)}
        shorter = None
        short_steps = min(chosen.steps, int((left - 2 * self._startup_seconds) / step)) // 5
        if short_steps >= _SHORT_PILOT_STEPS:
            recipe = shape.recipe(short_steps, watch=watch, machine=self._machine)
            self._say(f"a short pilot run of {short_steps * recipe.tokens_per_step:,} tokens")
            begun = time.monotonic()
            shorter = measure(self._sources, recipe, self._work)
            self._note(shape, shorter)
            left -= time.monotonic() - begun
            step = self._expected_step(shape)
        steps = min(chosen.steps, max(_PILOT_STEPS, int(left / step)))
        recipe = shape.recipe(
            steps,
            watch=watch,
            machine={**self._machine, "compile": "on" if compiles else "off"},
        )
        self._say(
            f"a pilot run of {shape.config.count_parameters():,} parameters and "
            f"{steps * recipe.tokens_per_step:,} tokens"
        )
        pilot = measure(self._sources, recipe, self._work)
        if not compiles:
            self._note(shape, pilot)
        if pilot.bits_per_byte is None:
            raise DataError("no held-out token is labelled: nothing can be foretold.")
        return shorter, pilot

    def _settle(
        self,
        shapes: Shapes,
        chosen: Candidate,
        shorter: Measured | None,
        pilot: Measured,
        budget_seconds: float,
    ) -> Plan:
        """Steps, looks and whether to compile, now that all is measured."""
        schedule = best_schedule(
            self._ways(chosen, pilot),
            budget_seconds,
            lambda most: shapes.useful_steps(chosen.shape, chosen.recipe, most),
        )
        recipe = chosen.shape.recipe(
            schedule.steps,
            rows=chosen.recipe.batch.sequences * chosen.recipe.batch.accumulation,
            watch={
                "validations": schedule.looks,
                "validation_tokens": validation_tokens(budget_seconds),
            },
            machine={**self._machine, "compile": "on" if schedule.way.is_compiled else "off"},
        )
        config, tokens = chosen.shape.config, schedule.steps * recipe.tokens_per_step
        training = Training(inner_parameters(config), tokens, self._unique_tokens)
        memory = estimate_memory(recipe, config)
        return Plan(
            candidate=replace(chosen, recipe=recipe, steps=schedule.steps),
            seconds=schedule.seconds,
            forecast=self._forecast(training, shorter, pilot),
            training=training,
            budget_seconds=budget_seconds,
            most_steps=schedule.most_steps,
            step_seconds=schedule.way.step,
            effective_tokens=shipped_law().effective_tokens(training),
            pilot=pilot,
            ram_bytes=memory.on_device or memory.in_ram,
            disk_bytes=estimate_disk(recipe, config).total,
        )

    def _ways(self, chosen: Candidate, pilot: Measured) -> list[Way]:
        """Uncompiled, and as the pilot ran, where that was compiled."""
        step = self._speed.step_seconds(chosen.shape.config, chosen.recipe)
        if pilot.recipe.machine.compile != "on":
            startup = max(self._startup_seconds, pilot.startup_seconds)
            return [self._way(startup, step, chosen, pilot)]
        eager = self._speed.step_seconds(pilot.config, pilot.recipe)
        compiled = step * pilot.step_seconds / eager
        return [
            self._way(self._startup_seconds, step, chosen, pilot),
            self._way(pilot.startup_seconds, compiled, chosen, pilot, is_compiled=True),
        ]

    def _way(
        self,
        startup: float,
        step: float,
        chosen: Candidate,
        pilot: Measured,
        is_compiled: bool = False,
    ) -> Way:
        """A look takes longer than the pilot's as a token does, however many a step reads."""
        token = step / chosen.recipe.tokens_per_step
        slower = token / (pilot.step_seconds / pilot.recipe.tokens_per_step)
        look = pilot.look_seconds * max(1.0, slower)
        return Way(self._start_seconds + startup, step, look, is_compiled)

    def _forecast(self, run: Training, shorter: Measured | None, pilot: Measured) -> Forecast:
        """What `run` ends at, by the law with this text's scale and, given two pilots, floor."""
        law, known = shipped_law(), self._training(pilot)
        assert pilot.bits_per_byte is not None
        if shorter is None or shorter.bits_per_byte is None:
            return law.forecast(run, known, pilot.bits_per_byte)
        ratio = shorter.bits_per_byte / pilot.bits_per_byte
        floor = law.floor_of(self._training(shorter), known, ratio)
        return law.forecast(run, known, pilot.bits_per_byte, floor)

    def _training(self, pilot: Measured) -> Training:
        inner = inner_parameters(pilot.config)
        return Training(inner, pilot.tokens, self._data.train_tokens)


_FAST_LOOK = {"validations": 1, "validation_tokens": 1, "sample_tokens": 0}


def validation_tokens(budget_seconds: float) -> int:
    """How much held-out text a validation of a run of that length reads."""
    return 16_384 if budget_seconds < 3600 else 32_768


def _has_compiler(device: str) -> bool:
    import torch

    from llamita.training.steps.compiling import has_compiler

    return has_compiler(torch.device(device))


def _too_short(budget_seconds: float, speed: SpeedModel, smallest: Shape) -> TrainingError:
    recipe = smallest.recipe(1)
    step = speed.step_seconds(smallest.config, recipe)
    return TrainingError(
        f"{budget_seconds:.0f} s are too short: a step of the smallest model takes "
        f"{step:.1f} s here, and getting ready comes before it.",
        hint="Plan for more --minutes.",
    )

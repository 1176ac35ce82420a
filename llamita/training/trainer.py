"""The training loop: draw, step, look, save, until the last step or Ctrl-C."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import torch

from llamita.data.loader import BlockLoader
from llamita.data.prefetch import Prefetcher
from llamita.data.training_data import TrainingData
from llamita.errors import Interrupted
from llamita.formats.detect import BEST, LATEST
from llamita.model import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.training.best import BestSoFar
from llamita.training.checkpointing.saver import Saver
from llamita.training.health import HealthGuard, check_finite_state
from llamita.training.interrupt import noted_interrupts
from llamita.training.looking import Watcher
from llamita.training.machine.determinism import (
    arithmetic_changes,
    deterministic_algorithms,
    fix_workspace,
    seed_rank,
)
from llamita.training.machine.meter import Meter
from llamita.training.pace import Pace
from llamita.training.ranks.world import World
from llamita.training.records.metrics import Log, MetricsLog, NoLog
from llamita.training.records.observer import Observer
from llamita.training.schedules import learning_rate_factor, validation_steps
from llamita.training.settings.recipe import Recipe
from llamita.training.settings.settling import with_steps
from llamita.training.steps.losses import Losses
from llamita.training.steps.optimizers import build_optimizers, clip_gradients, set_learning_rate
from llamita.training.steps.parallel import share_rows, training_loader
from llamita.training.steps.step import accumulate_gradients, on_device


class Trainer:
    """One run in progress: `step` optimizer steps and `seconds` of training so far."""

    def __init__(
        self,
        run: Path,
        data: TrainingData,
        recipe: Recipe,
        model: Transformer,
        tokenizer: Tokenizer,
        observer: Observer,
        teacher: Transformer | None = None,
        world: World = World(),
        loader: BlockLoader | None = None,
    ) -> None:
        open_settings = recipe.machine.model_dump(exclude={"parallel"})
        if "auto" in open_settings.values():
            raise ValueError("the recipe's machine must be decided before the trainer takes it")
        if recipe.machine.deterministic:
            fix_workspace()
        self.run_directory = run
        self.data = data
        self.recipe = recipe
        self.model = model
        model.checkpointing = recipe.machine.activation_checkpointing
        self.tokenizer = tokenizer
        self.observer = observer
        self.world = world
        self.device = torch.device(recipe.machine.device)
        self.optimizers = build_optimizers(model, recipe.optimizer, recipe.machine.precision)
        self._saver = Saver(model, self.optimizers, tokenizer, recipe, world)
        self.writer = self._saver.writer
        self.loader = Prefetcher(loader or training_loader(data, recipe, world))
        self._micro_batches = share_rows(recipe.batch, world).micro_batches
        self._watcher = Watcher(model, tokenizer, data, recipe, world)
        self.losses = Losses(model, recipe, self.device, teacher, world)
        self.step = 0
        self.best = BestSoFar(recipe.watch.patience)
        self.seconds = 0.0
        clip_norm = recipe.optimizer.clip_norm
        self.guard = HealthGuard(recipe.health, clip_norm, warns=world.is_first)
        self.meter = Meter(model.config, recipe.batch.context_length)
        self._is_best = False
        self._arithmetic_before: dict[str, Any] = {}
        seed_rank(recipe.seed, world.rank)

    @property
    def notes(self) -> list[str]:
        """What a person should know before the first step."""
        return [*self.loader.notes, *self._watcher.notes]

    @property
    def steps(self) -> int:
        """How many steps the whole run may take; it must be settled before the first."""
        if self.recipe.length.steps is None:
            raise ValueError("the recipe has no step count yet")
        return self.recipe.length.steps

    @property
    def is_finished(self) -> bool:
        """Whether all steps were taken, or validations have shown that more would be in vain."""
        return self.step >= self.steps or self.best.ends_run

    def settle_steps(self, steps: int) -> None:
        """Write the length of the run into its recipe, and the learning rate that follows."""
        self.recipe = with_steps(self.recipe, self.model.config, steps)

    def computing(self) -> AbstractContextManager[None]:
        """What every step and validation must run in to be exact."""
        return deterministic_algorithms(self.recipe.machine.deterministic, self.observer.say)

    def compile(self) -> None:
        """Compile the steps, if the recipe asks for it, once. Whatever that draws is put back."""
        if self.recipe.machine.compile == "on" and self.losses.may_compile:
            with self.computing(), torch.random.fork_rng(self._devices()):
                beginning = self.loader.state_dict()
                batch = on_device(self.loader.next_batch(), self.device)
                self.losses.compile(batch, self.observer)
                self.loader.load_state_dict(beginning)

    def resume(self) -> None:
        """Go back to the newest whole checkpoint, if there is one, and write it as `latest/`.

        A position in other data means nothing: changed data is read from its beginning.
        """
        progress = self._saver.restore(self.run_directory, self.observer.say)
        if progress is None:
            self.observer.say("no checkpoint yet: starting at the first step")
            return
        self.step = progress["step"]
        self.best.load_state_dict(progress)
        self.seconds = progress["seconds"]
        self.guard.load_state_dict(progress.get("health", {}))
        if progress["data_fingerprint"] == self.data.fingerprint:
            self.loader.load_state_dict(progress["loader"])
        else:
            self.observer.say("the data changed: reading it from its beginning")
            # What was best and what was usual were so of other text.
            self.best.reset()
            self.guard.load_state_dict({})
        self._arithmetic_before = progress.get("arithmetic", {})
        self.observer.say(f"resuming after step {self.step} of {self.steps}")

    def train(self) -> None:
        """Take the steps that are left.

        Raises:
            Interrupted: Ctrl-C, after saving.
            TrainingError: the run has gone wrong; what was saved before is whole.
        """
        self.model.train()
        marks = validation_steps(self.steps, self.recipe.watch)
        beginning = self._start_meter()
        is_due = False
        pace = Pace(self.seconds)
        if not self.is_finished:
            self.compile()
            for change in arithmetic_changes(self._arithmetic_before, self.losses.arithmetic()):
                self.observer.say(f"{change}: the numbers may differ in their last bits")
        with (
            closing(self.open_log(self.step)) as log,
            closing(self.loader),
            noted_interrupts(patient=self.world.size > 1) as interrupt,
            self.writer,
            self.computing(),
        ):
            while not self.is_finished:
                values = self.take_step()
                at_mark = self.step in marks
                if at_mark or self.step % self.recipe.watch.log_every == 0 or "skipped" in values:
                    values |= {"seconds": round(pace.seconds, 2), **self.meter.take(), **beginning}
                    log.write(self.step, values)
                    self.observer.on_log(values)
                    beginning = {}
                self._check_health()
                if at_mark:
                    self.look(log)
                self.seconds = pace.seconds
                is_late = pace.minutes_unsaved > self.recipe.checkpoints.every_minutes
                # All ranks save and stop after the same step; the first one has the clock.
                is_late, must_stop, has_failed = self.world.any(
                    is_late and self.world.is_first, interrupt.asked, self.writer.has_failed
                )
                is_due |= at_mark or self._saver.is_milestone(self.step) or is_late
                if self._is_sound and (is_due or must_stop):
                    self.save(log)
                    pace.saved()
                    is_due = False
                if has_failed:
                    self.writer.wait()
                if must_stop and not self.is_finished:
                    self.writer.wait()
                    saved = "everything is" if self._is_sound else "its last steps are not"
                    raise Interrupted(
                        f"stopped after step {self.step} of {self.steps}; {saved} saved.",
                        hint="Run the same command again to go on.",
                    )
        if interrupt.asked:
            self.observer.on_late_stop()

    def open_log(self, step: int) -> Log:
        """The run's log after `step`; the first rank writes it."""
        return MetricsLog(self.run_directory, step) if self.world.is_first else NoLog()

    def _start_meter(self) -> dict[str, Any]:
        """What the first line of the log says besides."""
        self.meter.start(self.recipe.machine.precision, self.recipe.machine.device)
        values: dict[str, Any] = {"resumed_after": self.step} if self.step else {}
        if self.meter.peak_flops is not None:
            [self.meter.peak_flops] = self.world.sum([self.meter.peak_flops])
            values["peak_flops"] = self.meter.peak_flops
        return values

    def take_step(self) -> dict[str, Any]:
        """One optimizer step; its loss, gradient norm, learning rate and speed."""
        started = time.perf_counter()
        batches = [self.loader.next_batch() for _ in range(self._micro_batches)]
        peak = self.recipe.optimizer.learning_rate
        if peak == "auto":
            raise ValueError("the recipe has no learning rate yet")
        learning_rate = peak * learning_rate_factor(self.recipe.schedule, self.step, self.steps)
        set_learning_rate(self.optimizers, learning_rate)
        result = accumulate_gradients(self.losses.training, batches, self.device, self.world)
        self.step += 1
        gradient_norm = 0.0
        skipped: dict[str, Any] = {}
        if result.tokens == 0:
            self.guard.note_empty()
            skipped = {"skipped": "empty", "reason": "no labelled token"}
        else:
            gradient_norm = clip_gradients(self.model, self.recipe.optimizer.clip_norm)
            bad = self.guard.judge(result.loss, gradient_norm)
            if bad is not None:
                skipped = {"skipped": bad.kind, "reason": bad.text}
                self.observer.say(f"step {self.step} skipped: {bad.text}")
            for optimizer in self.optimizers:
                if bad is None:
                    optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - started
        self.meter.add(self.recipe.tokens_per_step, seconds)
        rate = self.recipe.tokens_per_step / seconds
        self.observer.on_step(self.step, self.steps, result.loss, rate)
        return {
            "loss": result.loss,
            "gradient_norm": gradient_norm,
            "learning_rate": learning_rate,
            "tokens": self.step * self.recipe.tokens_per_step,
            **skipped,
        }

    def save(self, log: Log) -> None:
        """Begin to write a checkpoint and the model as `latest/`, and as `best/` if it is.

        What earlier saves failed with is raised here, or by `writer.check()`.
        """
        self.writer.wait()
        check_finite_state(self.model, self.optimizers, self.step, self.world)
        progress = {
            "step": self.step,
            **self.best.state_dict(),
            "seconds": self.seconds,
            "data_fingerprint": self.data.fingerprint,
            "loader": self.loader.state_dict(),
            "health": self.guard.state_dict(),
            "arithmetic": self.losses.arithmetic(),
        }
        names = [BEST, LATEST] if self._is_best else [LATEST]
        self._is_best = False
        self._saver.begin(self.run_directory, self.step, progress, names, log.sync)

    def look(self, log: Log) -> None:
        """Validate, note whether the model is the best so far, and draw a sample.

        The save that follows keeps the best. Nothing here may move the random state of the steps:
        a second graph that is compiled for it, in one process earlier than in another, could.
        """
        with torch.random.fork_rng(self._devices()):
            look = self._watcher.look(self.losses.plain, self.step, samples=self._is_sound)
        # Where nothing is saved there is no best either.
        if look.loss is not None and self._is_sound:
            self._is_best |= self.best.note(look.loss, self.step)
        values = dict(look.values)
        if len(self.data.folders) > 1:
            names = self.data.names
            values |= {f"epochs/{n}": e for n, e in zip(names, self.loader.epochs, strict=True)}
        log.write(self.step, values)
        self.observer.say(f"step {self.step}/{self.steps}{look.text}")
        if self.best.ends_run and self.step < self.steps:
            log.write(self.step, {"stopped_early": True})
            self.observer.say(f"stopping early: {self.best.described}")

    def _devices(self) -> list[torch.device]:
        return [self.device] if self.device.type == "cuda" else []

    @property
    def _is_sound(self) -> bool:
        return self.guard.may_save(is_last=self.step == self.steps)

    def _check_health(self) -> None:
        """Stop a run that has gone wrong. Weights that are no numbers make every step bad."""
        if self.guard.is_nonfinite:
            check_finite_state(self.model, [], self.step, self.world)
        self.guard.check(self.step, is_last=self.step == self.steps)

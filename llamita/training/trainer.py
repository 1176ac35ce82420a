"""The training loop: draw, step, look, save, until the last step or Ctrl-C."""

from __future__ import annotations

import math
import time
import warnings
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import torch

from llamita.data.prefetch import Prefetcher
from llamita.data.training_data import TrainingData
from llamita.errors import Interrupted
from llamita.formats.detect import BEST, LATEST
from llamita.model import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.training.checkpoints import load_newest_checkpoint, take_snapshot
from llamita.training.compiling import CompiledLoss
from llamita.training.determinism import (
    arithmetic,
    arithmetic_changes,
    deterministic_algorithms,
    fix_workspace,
)
from llamita.training.distillation import distillation_loss_sum
from llamita.training.health import HealthGuard, check_finite_state
from llamita.training.interrupt import noted_interrupts
from llamita.training.looking import Watcher
from llamita.training.meter import Meter
from llamita.training.metrics import MetricsLog
from llamita.training.observer import Observer
from llamita.training.optimizers import build_optimizers, clip_gradients, set_learning_rate
from llamita.training.recipe import Length, Recipe
from llamita.training.saving import BackgroundWriter, write_models, write_save
from llamita.training.scaling import peak_learning_rate
from llamita.training.schedules import learning_rate_factor, validation_steps
from llamita.training.step import LossSum, accumulate_gradients, loss_sum_function, on_device


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
    ) -> None:
        if "auto" in recipe.machine.model_dump().values():
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
        self.device = torch.device(recipe.machine.device)
        self.optimizers = build_optimizers(model, recipe.optimizer, recipe.machine.precision)
        batch = recipe.batch
        self.loader = Prefetcher(
            data.loader(
                batch.context_length,
                batch.sequences,
                recipe.seed,
                batch.packing,
                batch.document_mask,
            )
        )
        self._watcher = Watcher(model, tokenizer, data, recipe)
        precision = recipe.machine.precision
        self._make_loss = partial(loss_sum_function, model, precision, self.device)
        self.plain_loss: LossSum = self._make_loss()
        if teacher is not None and recipe.teacher is not None:
            self._make_loss = partial(
                distillation_loss_sum, model, teacher, recipe.teacher, precision, self.device
            )
        self.loss_sum: LossSum = self._make_loss()
        self.step = 0
        self.best_loss = math.inf
        self.seconds = 0.0
        self.writer = BackgroundWriter()
        self.guard = HealthGuard(recipe.health, recipe.optimizer.clip_norm)
        self.meter = Meter(model.config, recipe.batch.context_length)
        self._is_best = False
        self._warned_of_empty_step = False
        self._arithmetic_before: dict[str, Any] = {}
        torch.manual_seed(recipe.seed)

    @property
    def notes(self) -> list[str]:
        """What a person should know before the first step."""
        return [*self.loader.notes, *self._watcher.notes]

    @property
    def steps(self) -> int:
        """How many steps the whole run takes; it must be settled before the first."""
        if self.recipe.length.steps is None:
            raise ValueError("the recipe has no step count yet")
        return self.recipe.length.steps

    def settle_steps(self, steps: int) -> None:
        """Write the length of the run into its recipe, and the learning rate that follows."""
        recipe = self.recipe.model_copy(update={"length": Length(steps=steps)})
        if recipe.optimizer.learning_rate == "auto":
            rate = peak_learning_rate(
                self.model.config,
                steps,
                recipe.tokens_per_step,
                recipe.optimizer.name,
                is_trained=recipe.init is not None,
            )
            optimizer = recipe.optimizer.model_copy(update={"learning_rate": rate})
            recipe = recipe.model_copy(update={"optimizer": optimizer})
        self.recipe = recipe

    def computing(self) -> AbstractContextManager[None]:
        """What every step and validation must run in to be exact."""
        return deterministic_algorithms(self.recipe.machine.deterministic, self.observer.say)

    def compile(self) -> None:
        """Compile the steps, if the recipe asks for it, once. Whatever that draws is put back."""
        if self.recipe.machine.compile == "on" and not isinstance(self.loss_sum, CompiledLoss):
            with self.computing(), torch.random.fork_rng(self._devices()):
                self._compile()

    def _compile(self) -> None:
        compiled = CompiledLoss(self.model, self._make_loss, self.observer.say)
        beginning = self.loader.state_dict()
        compiled.warm_up(*on_device(self.loader.next_batch(), self.device))
        self.model.zero_grad(set_to_none=True)
        self.loader.load_state_dict(beginning)
        if self.recipe.teacher is None:
            self.plain_loss = compiled
        self.loss_sum = compiled

    def resume(self) -> None:
        """Go back to the newest whole checkpoint, if there is one, and write it as `latest/`.

        A position in other data means nothing: changed data is read from its beginning.
        """
        progress = load_newest_checkpoint(
            self.run_directory / "checkpoints", self.model, self.optimizers, self.observer.say
        )
        if progress is None:
            self.observer.say("no checkpoint yet: starting at the first step")
            return
        self.step = progress["step"]
        self.best_loss = progress["best_loss"]
        self.seconds = progress["seconds"]
        self.guard.load_state_dict(progress.get("health", {}))
        if progress["data_fingerprint"] == self.data.fingerprint:
            self.loader.load_state_dict(progress["loader"])
        else:
            self.observer.say("the data changed: reading it from its beginning")
            # What was best and what was usual were so of other text.
            self.best_loss = math.inf
            self.guard.load_state_dict({})
        self._arithmetic_before = progress.get("arithmetic", {})
        write_models(
            self.run_directory,
            [LATEST],
            self.model.config,
            self.model.state_dict(),
            self.tokenizer,
        )
        self.observer.say(f"resuming after step {self.step} of {self.steps}")

    def train(self) -> None:
        """Take the steps that are left.

        Raises:
            Interrupted: Ctrl-C, after saving.
            TrainingError: the run has gone wrong; what was saved before is whole.
        """
        self.model.train()
        marks = validation_steps(self.steps, self.recipe.watch)
        self.meter.start(self.recipe.machine.precision, self.recipe.machine.device)
        beginning: dict[str, Any] = {}
        if self.meter.peak_flops is not None:
            beginning["peak_flops"] = self.meter.peak_flops
        if self.step:
            beginning["resumed_after"] = self.step
        is_due = False
        started = saved_at = time.monotonic()
        seconds_before = self.seconds
        if self.step < self.steps:
            self.compile()
            for change in arithmetic_changes(self._arithmetic_before, self._arithmetic()):
                self.observer.say(f"{change}: the numbers may differ in their last bits")
        log = MetricsLog(self.run_directory, self.step)
        with (
            closing(log),
            closing(self.loader),
            noted_interrupts() as interrupt,
            self.writer,
            self.computing(),
        ):
            while self.step < self.steps:
                values = self.take_step()
                at_mark = self.step in marks
                if at_mark or self.step % self.recipe.watch.log_every == 0 or "skipped" in values:
                    seconds = seconds_before + time.monotonic() - started
                    values |= {"seconds": round(seconds, 2), **self.meter.take(), **beginning}
                    log.write(self.step, values)
                    self.observer.on_log(values)
                    beginning = {}
                self._check_health()
                if at_mark:
                    self.look(log)
                self.seconds = seconds_before + time.monotonic() - started
                interval = 60 * self.recipe.checkpoints.every_minutes
                is_due |= at_mark or self._is_milestone() or time.monotonic() - saved_at > interval
                if self._is_sound and (is_due or interrupt.asked):
                    self.save(log)
                    saved_at, is_due = time.monotonic(), False
                self.writer.check()
                if interrupt.asked and self.step < self.steps:
                    self.writer.wait()
                    saved = "everything is" if self._is_sound else "its last steps are not"
                    raise Interrupted(
                        f"stopped after step {self.step} of {self.steps}; {saved} saved.",
                        hint="Run the same command again to go on.",
                    )

    def take_step(self) -> dict[str, Any]:
        """One optimizer step; its loss, gradient norm, learning rate and speed."""
        started = time.perf_counter()
        batches = [self.loader.next_batch() for _ in range(self.recipe.batch.accumulation)]
        peak = self.recipe.optimizer.learning_rate
        if peak == "auto":
            raise ValueError("the recipe has no learning rate yet")
        learning_rate = peak * learning_rate_factor(self.recipe.schedule, self.step, self.steps)
        set_learning_rate(self.optimizers, learning_rate)
        result = accumulate_gradients(self.loss_sum, batches, self.device)
        self.step += 1
        gradient_norm = 0.0
        skipped: dict[str, Any] = {}
        if result.tokens == 0:
            self._warn_of_empty_step()
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

    def save(self, log: MetricsLog) -> None:
        """Begin to write a checkpoint and the model as `latest/`, and as `best/` if it is.

        What earlier saves failed with is raised here, or by `writer.check()`.
        """
        self.writer.wait()
        check_finite_state(self.model, self.optimizers, self.step)
        progress = {
            "step": self.step,
            "best_loss": self.best_loss,
            "seconds": self.seconds,
            "data_fingerprint": self.data.fingerprint,
            "loader": self.loader.state_dict(),
            "health": self.guard.state_dict(),
            "arithmetic": self._arithmetic(),
        }
        names = [BEST, LATEST] if self._is_best else [LATEST]
        self._is_best = False
        write = partial(
            write_save,
            self.run_directory,
            take_snapshot(self.step, self.model, self.optimizers, progress),
            self.model.config,
            self.tokenizer,
            names,
            self.recipe.checkpoints,
            log.sync,
        )
        self.writer.start(write)

    def _arithmetic(self) -> dict[str, Any]:
        loss = self.loss_sum
        return arithmetic(is_compiled=isinstance(loss, CompiledLoss) and loss.is_compiled)

    def _is_milestone(self) -> bool:
        keep_every = self.recipe.checkpoints.keep_every
        return keep_every is not None and self.step % keep_every == 0

    def look(self, log: MetricsLog) -> None:
        """Validate, note whether the model is the best so far, and draw a sample.

        The save that follows keeps the best. Nothing here may move the random state of the steps:
        a second graph that is compiled for it, in one process earlier than in another, could.
        """
        with torch.random.fork_rng(self._devices()):
            look = self._watcher.look(self.plain_loss, self.step, samples=self._is_sound)
        # Where nothing is saved there is no best either.
        if look.loss is not None and look.loss < self.best_loss and self._is_sound:
            self.best_loss, self._is_best = look.loss, True
        values = dict(look.values)
        if len(self.data.folders) > 1:
            names = self.data.names
            values |= {f"epochs/{n}": e for n, e in zip(names, self.loader.epochs, strict=True)}
        log.write(self.step, values)
        self.observer.say(f"step {self.step}/{self.steps}{look.text}")

    def _devices(self) -> list[torch.device]:
        return [self.device] if self.device.type == "cuda" else []

    @property
    def _is_sound(self) -> bool:
        """Whether to save what there is now.

        A loss that is no number may come of the weights: a save waits for one that is, but at the
        last step none will come, and the update was skipped: there the weights alone decide.
        """
        return not self.guard.is_nonfinite or self.step == self.steps

    def _check_health(self) -> None:
        """Stop a run that has gone wrong. Weights that are no numbers make every step bad."""
        if self.guard.is_nonfinite:
            check_finite_state(self.model, [], self.step)
        self.guard.check(self.step, is_last=self.step == self.steps)

    def _warn_of_empty_step(self) -> None:
        if not self._warned_of_empty_step:
            self._warned_of_empty_step = True
            warnings.warn(
                "a step without one labelled token changes nothing; is the mask right?",
                stacklevel=3,
            )

"""The training loop: draw, step, look, save, until the last step or Ctrl-C."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from llamita.data.prefetch import Prefetcher
from llamita.data.training_data import TrainingData
from llamita.errors import Interrupted, TrainingError
from llamita.formats.detect import BEST, LATEST
from llamita.formats.huggingface import save_model_directory
from llamita.model import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.training.checkpoints import load_newest_checkpoint, take_snapshot
from llamita.training.compiling import CompiledLoss
from llamita.training.determinism import (
    arithmetic,
    arithmetic_changes,
    deterministic_algorithms,
)
from llamita.training.interrupt import noted_interrupts
from llamita.training.metrics import MetricsLog
from llamita.training.optimizers import build_optimizers, clip_gradients, set_learning_rate
from llamita.training.recipe import Length, Recipe
from llamita.training.saving import BackgroundWriter, write_save
from llamita.training.schedules import learning_rate_factor
from llamita.training.step import LossSum, accumulate_gradients, loss_sum_function, on_device
from llamita.training.validation import sample, validate, validation_sets


@dataclass(frozen=True)
class Observer:
    """Where a run reports to: lines of text, and the state after each step.

    `on_step` is called with the step, all steps, the loss and the tokens per second.
    """

    say: Callable[[str], None]
    on_step: Callable[[int, int, float, float], None]


SILENT = Observer(say=lambda text: None, on_step=lambda step, steps, loss, rate: None)


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
    ) -> None:
        if "auto" in recipe.machine.model_dump().values():
            raise ValueError("the recipe's machine must be decided before the trainer takes it")
        self.run_directory = run
        self.data = data
        self.recipe = recipe
        self.model = model
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
        self.validation = validation_sets(data, recipe)
        self.loss_sum: LossSum = loss_sum_function(model, recipe.machine.precision, self.device)
        self.step = 0
        self.best_loss = math.inf
        self.seconds = 0.0
        self.writer = BackgroundWriter()
        self._is_best = False
        self._warned_of_empty_step = False
        if recipe.machine.compile == "on":
            with self.computing():
                self._compile()
        torch.manual_seed(recipe.seed)

    @property
    def steps(self) -> int:
        """How many steps the whole run takes; it must be settled before the first."""
        if self.recipe.length.steps is None:
            raise ValueError("the recipe has no step count yet")
        return self.recipe.length.steps

    def settle_steps(self, steps: int) -> None:
        """Write the length of the run into its recipe, in place of tokens or minutes."""
        self.recipe = self.recipe.model_copy(update={"length": Length(steps=steps)})

    def computing(self) -> AbstractContextManager[None]:
        """What every step and validation must run in to be exact."""
        return deterministic_algorithms(self.recipe.machine.deterministic, self.observer.say)

    def _compile(self) -> None:
        """Compile before the random state is set: what that draws must not reach the run."""
        compiled = CompiledLoss(self.loss_sum, self.observer.say)
        beginning = self.loader.state_dict()
        compiled.warm_up(*on_device(self.loader.next_batch(), self.device))
        self.model.zero_grad(set_to_none=True)
        self.loader.load_state_dict(beginning)
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
        if progress["data_fingerprint"] == self.data.fingerprint:
            self.loader.load_state_dict(progress["loader"])
        else:
            self.observer.say("the data changed: reading it from its beginning")
        for change in arithmetic_changes(progress.get("arithmetic", {})):
            self.observer.say(f"{change}: the numbers may differ in their last bits")
        save_model_directory(
            self.model, self.run_directory / LATEST, self.tokenizer, overwrite=True
        )
        self.observer.say(f"resuming after step {self.step} of {self.steps}")

    def train(self) -> None:
        """Take the steps that are left.

        Raises:
            Interrupted: Ctrl-C, after saving.
            TrainingError: the loss is not a number any more.
        """
        self.model.train()
        marks = _evenly(self.steps, self.recipe.watch.validations)
        started = saved_at = time.monotonic()
        seconds_before = self.seconds
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
                if at_mark or self.step % self.recipe.watch.log_every == 0:
                    log.write(self.step, values)
                if at_mark:
                    self.look(log)
                self.seconds = seconds_before + time.monotonic() - started
                interval = 60 * self.recipe.checkpoints.every_minutes
                is_due = at_mark or self._is_milestone() or time.monotonic() - saved_at > interval
                if is_due or interrupt.asked:
                    self.save(log)
                    saved_at = time.monotonic()
                self.writer.check()
                if interrupt.asked and self.step < self.steps:
                    self.writer.wait()
                    raise Interrupted(
                        f"stopped after step {self.step} of {self.steps}; everything is saved.",
                        hint="Run the same command again to go on.",
                    )

    def take_step(self) -> dict[str, Any]:
        """One optimizer step; its loss, gradient norm, learning rate and speed."""
        started = time.perf_counter()
        batches = [self.loader.next_batch() for _ in range(self.recipe.batch.accumulation)]
        learning_rate = self.recipe.optimizer.learning_rate * learning_rate_factor(
            self.recipe.schedule, self.step, self.steps
        )
        set_learning_rate(self.optimizers, learning_rate)
        result = accumulate_gradients(self.loss_sum, batches, self.device)
        gradient_norm = 0.0
        if result.tokens == 0:
            self._warn_of_empty_step()
        else:
            gradient_norm = clip_gradients(self.model, self.recipe.optimizer.clip_norm)
            self._check_finite(result.loss, gradient_norm)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        self.step += 1
        rate = self.recipe.tokens_per_step / (time.perf_counter() - started)
        self.observer.on_step(self.step, self.steps, result.loss, rate)
        return {
            "loss": result.loss,
            "gradient_norm": gradient_norm,
            "learning_rate": learning_rate,
            "tokens": self.step * self.recipe.tokens_per_step,
            "tokens_per_second": round(rate, 1),
        }

    def save(self, log: MetricsLog) -> None:
        """Begin to write a checkpoint and the model as `latest/`, and as `best/` if it is.

        What earlier saves failed with is raised here, or by `writer.check()`.
        """
        self.writer.wait()
        progress = {
            "step": self.step,
            "best_loss": self.best_loss,
            "seconds": self.seconds,
            "data_fingerprint": self.data.fingerprint,
            "loader": self.loader.state_dict(),
            "arithmetic": arithmetic(),
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

    def _is_milestone(self) -> bool:
        keep_every = self.recipe.checkpoints.keep_every
        return keep_every is not None and self.step % keep_every == 0

    def look(self, log: MetricsLog) -> None:
        """Validate, note whether the model is the best so far, and draw a sample.

        The save that follows keeps the best. Nothing here may move the random state of the steps:
        a second graph that is compiled for it, in one process earlier than in another, could.
        """
        with torch.random.fork_rng(self._devices()):
            self._look(log)

    def _look(self, log: MetricsLog) -> None:
        line = f"step {self.step}/{self.steps}"
        values: dict[str, Any] = {}
        if self.validation:
            found = validate(self.model, self.loss_sum, self.validation, self.device)
            values = found.values
            line += f"  validation loss {found.loss:.3f} ({found.bits_per_byte:.3f} bits per byte)"
            if found.loss < self.best_loss:
                self.best_loss, self._is_best = found.loss, True
        if len(self.data.folders) > 1:
            names = self.data.names
            values |= {f"epochs/{n}": e for n, e in zip(names, self.loader.epochs, strict=True)}
        if self.recipe.watch.sample_tokens:
            values["sample"] = sample(self.model, self.tokenizer, self.recipe)
            line += f"\n  {_one_line(values['sample'])}"
        log.write(self.step, values)
        self.observer.say(line)

    def _devices(self) -> list[torch.device]:
        return [self.device] if self.device.type == "cuda" else []

    def _check_finite(self, loss: float, gradient_norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(gradient_norm):
            return
        raise TrainingError(
            f"the loss is {loss} and the gradient norm {gradient_norm} at step {self.step + 1}.",
            hint="Begin again in another folder, or after deleting this one, with an "
            f"optimizer.learning_rate below {self.recipe.optimizer.learning_rate}.",
        )

    def _warn_of_empty_step(self) -> None:
        if not self._warned_of_empty_step:
            self._warned_of_empty_step = True
            warnings.warn(
                "a step without one labelled token changes nothing; is the mask right?",
                stacklevel=3,
            )


def _evenly(steps: int, parts: int) -> set[int]:
    """The ends of `parts` equal parts of a run."""
    return {math.ceil(steps * part / parts) for part in range(1, parts + 1)}


def _one_line(text: str, longest: int = 200) -> str:
    """For a terminal: no line breaks, and no control characters, which could steer it."""
    line = "".join(c if c.isprintable() else "·" for c in " ".join(text.split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"

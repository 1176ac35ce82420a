"""The setting nearest to a recipe's that fits, where the recipe's own does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from llamita.config import ModelConfig, shape_for
from llamita.errors import ConfigError
from llamita.training.memory.accounting import MemoryEstimate, Parallel, estimate_memory
from llamita.training.settings.recipe import Recipe

Fits = Callable[[MemoryEstimate], bool]

_SAME_BATCHES = "the same batches"
_MOST_RANKS = 1024
# Sizes that are tried below a model's own, in steps as a person would write them.
_LEADING_DIGITS = (8, 6, 5, 4, 3, 2.5, 2, 1.5, 1.2, 1)


@dataclass(frozen=True)
class Setting:
    """`changes` as a person would type them, what they leave as it was, and what they take."""

    changes: tuple[str, ...]
    keeps: str
    memory: MemoryEstimate

    @property
    def text(self) -> str:
        return " ".join(self.changes)


@dataclass(frozen=True)
class _Choice:
    recipe: Recipe
    config: ModelConfig
    ranks: int
    parallel: Parallel
    changes: tuple[str, ...] = ()
    keeps: str = ""

    def changed(self, keeps: str, **settings: Any) -> _Choice:
        """With settings `table__name=value` of the recipe."""
        recipe, changes = self.recipe, list(self.changes)
        for key, value in settings.items():
            table, name = key.split("__")
            part = getattr(recipe, table).model_copy(update={name: value})
            recipe = recipe.model_copy(update={table: part})
            shown = str(value).lower() if isinstance(value, bool) else value
            changes.append(f"--set {table}.{name}={shown}")
        keeps = keeps or self.keeps
        return replace(self, recipe=recipe, changes=tuple(changes), keeps=keeps)


@dataclass(frozen=True)
class SettingSearch:
    """A run that does not fit, as `estimate_memory` takes it, and what says whether one does.

    A run that `has_begun` may change but how its layers are computed and where its weights lie.
    """

    recipe: Recipe
    config: ModelConfig
    fits: Fits
    ranks: int = 1
    parallel: Parallel = "ddp"
    teacher: ModelConfig | None = None
    train_tokens: int = 0
    has_begun: bool = False

    def nearest(self) -> Setting | None:
        """The first that fits as many ranks of: smaller micro-batches, layers computed again in the
        backward pass, fsdp in place of ddp, shorter rows, a smaller model.

        All but the last two train on the same batches; all keep the tokens of a step.
        """
        choices = self._same_batches_here()
        if not self.has_begun:
            choices = chain(choices, _other_batches(self._start))
        return self._first(choices)

    def with_more_gpus(self) -> Setting | None:
        """The fewest GPUs that fit, with the same batches under fsdp; None where as many as there
        are do that, or the run is not of GPUs."""
        if self.recipe.machine.device != "cuda" or self._first(self._same_batches_here()):
            return None
        return self._first(self._more_ranks())

    @property
    def _start(self) -> _Choice:
        return _Choice(self.recipe, self.config, self.ranks, self.parallel)

    def _first(self, choices: Iterator[_Choice]) -> Setting | None:
        for choice in choices:
            memory = estimate_memory(
                choice.recipe,
                choice.config,
                ranks=choice.ranks,
                parallel=choice.parallel,
                teacher=self.teacher,
                train_tokens=self.train_tokens,
            )
            if self.fits(memory):
                return Setting(choice.changes, choice.keeps, memory)
        return None

    def _changed(self, choice: _Choice) -> Iterator[_Choice]:
        """The same batches in another way."""
        return _recomputed(choice) if self.has_begun else _same_batches(choice)

    def _same_batches_here(self) -> Iterator[_Choice]:
        start = self._start
        yield from self._changed(start)
        if start.ranks > 1 and start.parallel == "ddp":
            changes = ("--set machine.parallel=fsdp",)
            sharded = replace(start, parallel="fsdp", changes=changes, keeps=_SAME_BATCHES)
            yield from (sharded, *self._changed(sharded))

    def _more_ranks(self) -> Iterator[_Choice]:
        start, batch = self._start, self.recipe.batch
        rows, ranks = batch.sequences * batch.accumulation, max(2, 2 * self.ranks)
        while ranks <= min(_MOST_RANKS, rows):
            if rows % ranks == 0:
                changes = (f"torchrun over {ranks} GPUs", "--set machine.parallel=fsdp")
                choice = replace(
                    start, ranks=ranks, parallel="fsdp", changes=changes, keeps=_SAME_BATCHES
                )
                yield from (choice, *self._changed(choice))
            ranks *= 2


def _other_batches(start: _Choice) -> Iterator[_Choice]:
    yield from _shorter_rows(start)
    if start.recipe.init is None:
        yield from _smaller_models(start)


def _same_batches(start: _Choice) -> Iterator[_Choice]:
    smaller = list(_smaller_micro_batches(start))
    yield from smaller
    for choice in (start, *smaller):
        yield from _recomputed(choice)


def _recomputed(start: _Choice) -> Iterator[_Choice]:
    if not start.recipe.machine.activation_checkpointing:
        yield start.changed(_SAME_BATCHES, machine__activation_checkpointing=True)


def _smaller_micro_batches(start: _Choice) -> Iterator[_Choice]:
    """The same rows of a step in more parts."""
    batch = start.recipe.batch
    rows = batch.sequences * batch.accumulation
    for size in range(batch.sequences - 1, 0, -1):
        if rows % size == 0:
            yield start.changed(
                _SAME_BATCHES, batch__sequences=size, batch__accumulation=rows // size
            )


def _shorter_rows(start: _Choice) -> Iterator[_Choice]:
    batch = start.recipe.batch
    rows, time = batch.sequences * batch.accumulation, batch.context_length // 2
    while time >= 32:
        rows *= 2
        yield start.changed(
            "the same tokens a step",
            batch__context_length=time,
            batch__sequences=1,
            batch__accumulation=rows,
        )
        time //= 2


def _smaller_models(start: _Choice) -> Iterator[_Choice]:
    """Models of round sizes below the recipe's own, in micro-batches as they are and of one row."""
    tied = start.config.tie_word_embeddings
    for size, text in _round_sizes(start.config.count_parameters()):
        try:
            config = shape_for(size, start.config.vocab_size, tie_word_embeddings=tied)
        except ConfigError:
            continue
        changes = (f"--params {text}",)
        choice = replace(start, config=config, changes=changes, keeps="a smaller model")
        yield choice
        batch = start.recipe.batch
        if batch.sequences > 1:
            rows = batch.sequences * batch.accumulation
            yield choice.changed("", batch__sequences=1, batch__accumulation=rows)


def _round_sizes(below: int) -> Iterator[tuple[int, str]]:
    for unit, letter in ((10**9, "b"), (10**6, "m"), (10**3, "k")):
        for power in (100, 10, 1):
            for digit in _LEADING_DIGITS:
                size = int(digit * power * unit)
                if 10_000 <= size < below:
                    yield size, f"{digit * power:g}{letter}"

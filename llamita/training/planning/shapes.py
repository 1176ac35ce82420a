"""The shapes a plan chooses from, and the choice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from llamita.config import ModelConfig, shape_for
from llamita.errors import ConfigError
from llamita.training.memory.accounting import estimate_memory
from llamita.training.memory.room import free_cuda_memory, free_memory
from llamita.training.planning.forecast import ScalingLaw, Training, shipped_law
from llamita.training.planning.speed import SpeedModel
from llamita.training.settings.learning_rates import (
    best_batch,
    inner_parameters,
    peak_learning_rate,
    power_of_two,
)
from llamita.training.settings.recipe import Recipe
from llamita.training.settings.recipe_file import parse_recipe

CONTEXT_LENGTH = 256
_ROWS = 16  # of a step at least, and of a micro-batch at most
_MOST_ROWS = 4096
_SIZES = (10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82)  # a fifth apart
# Columns: narrower models learn little, and cannot tell many tokens apart.
_NARROWEST, _NARROWEST_OF_MANY = 64, 96
_MANY_TOKENS = 2048
_SMALLEST_HEAD = 32  # attention over smaller heads takes longer than it is worth
_LEAST_STEPS = 50
_LEAST_USEFUL = 150  # steps that no text is too small for
# Larger shapes are not looked at: those that see less than so many tokens a parameter even at the
# machine's peak (in float32; of a lower precision it is up to three times that), or that have more
# parameters than so many for each token of the text.
_LEAST_TOKENS = 0.2
_LOWER_PRECISION = 3.0
_MOST_PARAMETERS = 20.0
# New tokens a parameter beyond which a model has no room for what they teach (Chinchilla has 20,
# arXiv:2203.15556). The law, of runs that saw fewer, does not know that.
_MOST_TOKENS = 25.0
_MEMORY = 0.8  # of what is free may be used


@dataclass(frozen=True)
class Shape:
    """A model's shape and the size that gives it, as `--params` takes it."""

    size: str
    config: ModelConfig

    def recipe(
        self,
        steps: int,
        *,
        rows: int = _ROWS,
        watch: dict[str, Any] | None = None,
        machine: dict[str, Any] | None = None,
    ) -> Recipe:
        """The default recipe for this shape with `rows` of tokens a step."""
        tokens = rows * CONTEXT_LENGTH
        settings = {
            "seed": 0,
            "model": {"params": self.size},
            "batch": {
                "context_length": CONTEXT_LENGTH,
                "sequences": min(rows, _ROWS),
                "accumulation": max(1, rows // _ROWS),
            },
            "optimizer": {
                "name": "muon",
                "learning_rate": peak_learning_rate(self.config, steps, tokens, "muon"),
            },
            "length": {"steps": steps},
            "watch": watch or {},
            "machine": machine or {},
        }
        return parse_recipe(settings, "the plan")


@dataclass(frozen=True)
class Candidate:
    """A shape for a time and a text.

    Attributes:
        steps: those that are worth taking, of `most_steps` that fit the time.
        relative_loss: the law's for them, over the text's scale.
        is_capped: another shape's is less, but that has no room for so many tokens.
    """

    shape: Shape
    recipe: Recipe
    steps: int
    most_steps: int
    relative_loss: float
    is_capped: bool = False


class Shapes:
    """All shapes worth a look for a vocabulary, a time and so many different tokens of text."""

    def __init__(
        self,
        vocab_size: int,
        seconds: float,
        unique_tokens: float,
        peak_flops: float,
        device: str = "cpu",
    ) -> None:
        self._vocab_size = vocab_size
        self._seconds = seconds
        self._unique_tokens = unique_tokens
        self._peak_flops = peak_flops
        self._device = device
        self._law: ScalingLaw = shipped_law()

    @cached_property
    def all(self) -> list[Shape]:
        """From the smallest on; ConfigError where the vocabulary leaves room for none."""
        shapes = list(self._fitting())
        if not shapes:
            raise ConfigError(
                f"a vocabulary of {self._vocab_size:,} leaves no room for a model here.",
                hint="Prepare the text with a smaller one: --tokenizer bpe:4096",
            )
        return shapes

    def to_time(self, further: float) -> list[Shape]:
        """A small shape, and one of `further` times its size."""
        first = self.all[min(1, len(self.all) - 1)]
        wanted = further * inner_parameters(first.config)
        second = min(self.all, key=lambda shape: abs(inner_parameters(shape.config) - wanted))
        return [first] if second is first else [first, second]

    def best(self, speed: SpeedModel, seconds: float) -> Candidate | None:
        """The shape with the best forecast for what fits `seconds`, of those that have room for so
        many tokens; None where none fits."""
        candidates = [self._candidate(shape, speed, seconds) for shape in self.all]
        found = [one for one in candidates if one.most_steps >= 1]
        enough = [one for one in found if one.most_steps >= _LEAST_STEPS]
        if not enough:  # whatever takes the most steps
            return max(found, key=lambda one: one.most_steps, default=None)
        able = [one for one in enough if self._tokens_a_parameter(one) <= _MOST_TOKENS]
        best = min(able or enough[-1:], key=lambda one: one.relative_loss)
        least = min(one.relative_loss for one in enough)
        return replace(best, is_capped=best.relative_loss > least)

    def _tokens_a_parameter(self, candidate: Candidate) -> float:
        tokens = candidate.steps * candidate.recipe.tokens_per_step
        inner = inner_parameters(candidate.shape.config)
        run = Training(inner, tokens, self._unique_tokens)
        return self._law.effective_tokens(run) / inner

    def largest(self, wanted: Shape, speed: SpeedModel, step_seconds: float) -> Shape:
        """`wanted`, or the largest below it whose step takes at most so long; the smallest of all
        where none does."""
        place = self.all.index(wanted)
        for shape in reversed(self.all[: place + 1]):
            if speed.step_seconds(shape.config, shape.recipe(1)) <= step_seconds:
                return shape
        return self.all[0]

    def useful_steps(self, shape: Shape, recipe: Recipe, most: int) -> int:
        """Of up to `most` steps those with the best forecast: from some number on a small text is
        learned by heart. A few are taken all the same, as the law knows no text so small that they
        would be too many, and a run keeps its best model."""
        least = min(most, _LEAST_USEFUL)
        tried = {max(least, round(most * 0.9**number)) for number in range(150)}
        return min(sorted(tried), key=lambda steps: self._loss(shape, recipe, steps))

    def _loss(self, shape: Shape, recipe: Recipe, steps: int) -> float:
        tokens = max(1, steps) * recipe.tokens_per_step
        training = Training(inner_parameters(shape.config), tokens, self._unique_tokens)
        return self._law.relative_loss(training)

    def _candidate(self, shape: Shape, speed: SpeedModel, seconds: float) -> Candidate:
        rows = _ROWS
        for _ in range(3):  # the batch follows from the tokens, and they from its speed
            recipe = shape.recipe(1, rows=rows)
            most = max(0, int(seconds / speed.step_seconds(shape.config, recipe)))
            steps = self.useful_steps(shape, recipe, most) if most else 0
            wanted = _rows_for(steps * recipe.tokens_per_step)
            if wanted == rows:
                break
            rows = wanted
        return Candidate(shape, recipe, steps, most, self._loss(shape, recipe, steps))

    def _fitting(self) -> Iterator[Shape]:
        room = free_cuda_memory() if self._device == "cuda" else free_memory()
        most = self._most_parameters
        found = 0
        for number in range(12 * 7):
            parameters = _SIZES[number % 12] * 10 ** (number // 12 + 3)
            if parameters > most and found:
                return
            config = _config(parameters, self._vocab_size)
            if config is None:
                continue
            shape = Shape(_size_text(parameters), config)
            recipe = shape.recipe(1, machine={"device": self._device})
            memory = estimate_memory(recipe, config)
            if room is not None and (memory.on_device or memory.in_ram) > _MEMORY * room.bytes:
                return
            found += 1
            yield shape

    @property
    def _most_parameters(self) -> float:
        flops = self._seconds * self._peak_flops * _LOWER_PRECISION
        of_the_time = math.sqrt(flops / (6 * _LEAST_TOKENS))
        return min(of_the_time, _MOST_PARAMETERS * self._unique_tokens)


@cache
def _config(parameters: int, vocab_size: int) -> ModelConfig | None:
    """The shape of that size; None where the vocabulary leaves no room for one that is worth it."""
    try:
        config = shape_for(parameters, vocab_size, CONTEXT_LENGTH)
    except ConfigError:
        return None
    narrowest = _NARROWEST if vocab_size < _MANY_TOKENS else _NARROWEST_OF_MANY
    too_narrow = config.hidden_size < narrowest or config.head_dim < _SMALLEST_HEAD
    return None if too_narrow else config


def _rows_for(tokens: int) -> int:
    """Rows of a step: the power of two nearest to Step Law's batch, but not fewer than usual."""
    return min(max(power_of_two(best_batch(tokens) / CONTEXT_LENGTH), _ROWS), _MOST_ROWS)


def _size_text(parameters: int) -> str:
    """1.5m for 1,500,000."""
    for unit, size in (("b", 10**9), ("m", 10**6)):
        if parameters >= size:
            return f"{parameters / size:g}{unit}"
    return f"{parameters / 1000:g}k"

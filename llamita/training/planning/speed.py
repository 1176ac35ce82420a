"""How long a step of a shape takes on this machine, from a few shapes that were timed.

A step does operations (matrix products forward and backward, and Muon's) and moves values
(activations through everything that is no product, logits through the loss). One rate for each is
fitted; what the fit leaves over at the timed shapes carries over to those near them, so that the
machine's cost of small matrices is in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from llamita.config import ModelConfig
from llamita.training.machine.meter import muon_flops, training_flops
from llamita.training.settings.recipe import Recipe

Array: TypeAlias = npt.NDArray[np.float64]

_PASSES_OF_A_LAYER = 12  # over values of the model's width, forward and backward
_PASSES_OF_LOGITS = 4


@dataclass(frozen=True)
class Timed:
    """A shape under a recipe, and the seconds that a step of it took."""

    config: ModelConfig
    recipe: Recipe
    step_seconds: float


@dataclass(frozen=True)
class SpeedModel:
    """Seconds an operation and seconds a value moved; `known` are logarithms of the operations that
    a token takes in the timed shapes, ascending, and of what they took over what the two rates
    give."""

    operation: float
    value: float
    known: tuple[tuple[float, float], ...]

    @classmethod
    def fit(cls, timed: Sequence[Timed]) -> SpeedModel:
        """Least squares of the relative errors, neither rate below zero; at least one shape."""
        work = np.array([step_work(one.config, one.recipe) for one in timed])
        seconds = np.array([one.step_seconds for one in timed])
        rates = _rates(work / seconds[:, None])
        left = np.log(seconds / (work @ rates))
        sizes = [_size(one.config, one.recipe) for one in timed]
        known = sorted(zip(sizes, left.tolist(), strict=True))
        return cls(float(rates[0]), float(rates[1]), tuple(known))

    def step_seconds(self, config: ModelConfig, recipe: Recipe) -> float:
        """Expected seconds of a step."""
        operations, values = step_work(config, recipe)
        places, left = zip(*self.known, strict=True)
        correction = math.exp(float(np.interp(_size(config, recipe), places, left)))
        return correction * (self.operation * operations + self.value * values)


def _size(config: ModelConfig, recipe: Recipe) -> float:
    """The logarithm of a token's operations: of a shape the same, however many a step takes."""
    return math.log(training_flops(config, recipe.batch.context_length))


def step_work(config: ModelConfig, recipe: Recipe) -> tuple[float, float]:
    """Operations and moved values of an optimizer step."""
    tokens, context = recipe.tokens_per_step, recipe.batch.context_length
    operations = tokens * training_flops(config, context)
    if recipe.optimizer.name == "muon":
        operations += muon_flops(config)
    queries = config.num_attention_heads * config.head_dim
    layer = _PASSES_OF_A_LAYER * (config.hidden_size + queries) + 6 * config.intermediate_size
    layer += 4 * config.num_attention_heads * context
    values = config.num_hidden_layers * layer + _PASSES_OF_LOGITS * config.vocab_size
    moved = float(tokens * values + 10 * config.count_parameters())
    return operations, moved


def _rates(work: Array) -> Array:
    """Two rates, none below zero, that bring each row of `work` [N, 2] near 1."""
    ones = np.ones(len(work))
    if len(work) > 1:
        both, *_ = np.linalg.lstsq(work, ones, rcond=None)
        if (both > 0).all():
            return np.asarray(both, dtype=np.float64)
    alone = [float(work[:, i] @ ones / (work[:, i] @ work[:, i])) for i in (0, 1)]
    if len(work) == 1:  # nothing tells the two apart: operations count
        return np.array([alone[0], 0.0])
    errors = [float(((work[:, i] * alone[i] - 1) ** 2).sum()) for i in (0, 1)]
    return np.array([alone[0], 0.0] if errors[0] <= errors[1] else [0.0, alone[1]])

"""What a run will come to before it is made: bits per byte from parameters and tokens.

The law has Chinchilla's form (arXiv:2203.15556), with repeated text worth less than new text
(arXiv:2305.16264), and a term for what is learned by heart, which small texts need:

    loss(N, D) = scale × (floor + (n / N)^a + (d / (D' + s))^b + (c E (N / U)^e)^h)
    E = D / U - 1, D' = U + U r (1 - exp(-E / r))  where a text of U tokens is read more than once

s is there since the first few hundred thousand tokens bring less than a power law has them bring.

N are the parameters outside the tables, D the tokens trained on. The constants are those of
llamita's trainer and default recipe, fitted to the runs that lie beside them in
`scaling_law.json` (`benchmarks/fit_scaling.py`). `scale` and `floor` are the text's and its
tokenizer's own: short runs on that very text, the pilots, give them. One gives the scale, so that a
forecast is its result times a ratio; a shorter one beside it gives the floor, which else is 1.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from llamita.errors import TrainingError

LAW_NAME = "scaling_law.json"

LOWEST_FLOOR, HIGHEST_FLOOR = 0.5, 4.0  # that texts have


@dataclass(frozen=True)
class Training:
    """What a run learns with: `parameters` outside the tables, `tokens` of training, and how many
    different ones there are."""

    parameters: float
    tokens: float
    unique_tokens: float

    @property
    def epochs(self) -> float:
        """How often the text is read."""
        return self.tokens / self.unique_tokens


@dataclass(frozen=True)
class Forecast:
    """Bits per byte, and between which values it is in about 19 cases of 20."""

    bits_per_byte: float
    low: float
    high: float


@dataclass(frozen=True)
class ScalingLaw:
    """The constants of the law (n, a, d, b, s, r, c, e, h), and how far from the pilot it errs.

    `error_floor` and `error_slope` give the standard deviation of the logarithm of a forecast:
    floor + slope × the distance between pilot and run, in powers of e of parameters and tokens.
    """

    parameter_scale: float
    parameter_power: float
    token_scale: float
    token_power: float
    token_start: float
    repeats: float
    overfit_scale: float
    overfit_size: float
    overfit_power: float
    error_floor: float
    error_slope: float

    def relative_loss(self, run: Training, floor: float = 1.0) -> float:
        """The loss of a run over the text's own scale."""
        of_parameters = math.pow(self.parameter_scale / run.parameters, self.parameter_power)
        tokens = self.effective_tokens(run) + self.token_start
        of_tokens = math.pow(self.token_scale / tokens, self.token_power)
        return floor + of_parameters + of_tokens + self._overfit(run)

    def floor_of(self, shorter: Training, longer: Training, ratio: float) -> float:
        """The floor of a text on which two runs' losses have that ratio, the shorter's over the
        longer's, within what texts can have."""
        if ratio <= 1:
            return HIGHEST_FLOOR
        above = self.relative_loss(shorter, 0.0) - ratio * self.relative_loss(longer, 0.0)
        return min(max(above / (ratio - 1), LOWEST_FLOOR), HIGHEST_FLOOR)

    def _overfit(self, run: Training) -> float:
        """What is lost on other text by learning this one by heart."""
        again = max(0.0, run.epochs - 1)
        size = math.pow(run.parameters / run.unique_tokens, self.overfit_size)
        return math.pow(self.overfit_scale * again * size, self.overfit_power)

    def effective_tokens(self, run: Training) -> float:
        """As many new tokens as the run's, read again and again, are worth."""
        again = run.epochs - 1
        if again <= 0:
            return run.tokens
        return run.unique_tokens * (1 + self.repeats * (1 - math.exp(-again / self.repeats)))

    def forecast(
        self, run: Training, pilot: Training, bits_per_byte: float, floor: float = 1.0
    ) -> Forecast:
        """What `run` ends at, where `pilot` on the same text ended at `bits_per_byte`."""
        ratio = self.relative_loss(run, floor) / self.relative_loss(pilot, floor)
        expected = bits_per_byte * ratio
        error = math.exp(2 * self.deviation(run, pilot))
        return Forecast(expected, expected / error, expected * error)

    def deviation(self, run: Training, pilot: Training) -> float:
        """The standard deviation of the logarithm of such a forecast."""
        return self.error_floor + self.error_slope * distance(run, pilot)


def distance(run: Training, pilot: Training) -> float:
    """How far a forecast reaches: the logarithms of both ratios, added up."""
    return abs(math.log(run.tokens / pilot.tokens)) + abs(
        math.log(run.parameters / pilot.parameters)
    )


@cache
def shipped_law() -> ScalingLaw:
    """The law that llamita was published with.

    Raises:
        TrainingError: the file is missing or damaged.
    """
    try:
        return ScalingLaw(**_shipped()["law"])
    except (TypeError, KeyError) as error:
        raise _damaged(error) from error


def shipped_runs() -> list[dict[str, Any]]:
    """The runs it was fitted to; TrainingError as for the law."""
    try:
        return list(_shipped()["runs"])
    except (TypeError, KeyError) as error:
        raise _damaged(error) from error


def _shipped() -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(
            files("llamita.training.planning").joinpath(LAW_NAME).read_text("utf-8")
        )
    except (OSError, ValueError) as error:
        raise _damaged(error) from error
    return stored


def _damaged(error: Exception) -> TrainingError:
    return TrainingError(
        f"{LAW_NAME}, which llamita brings, cannot be read: {error}.",
        hint="Install llamita again.",
    )

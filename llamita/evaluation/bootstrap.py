"""How far a figure would scatter on other text of the kind: the bootstrap over units.

The units (documents, questions) are drawn anew, with replacement, as many as there are; the figure
of each drawn set scatters as the figure itself would over other sets (Efron and Tibshirani, An
Introduction to the Bootstrap, 1993). All draws come from a fixed seed. What is drawn scatters less
than what it stands for by (m - 1) / m, m units, so standard errors are multiplied by the root of
m / (m - 1): of a plain mean this is the textbook's. Of very many units the draws would take long
and tell nothing new: their scatter is that of the ratio's linear part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

DRAWS = 2000
LARGE = 10_000  # units above which formulas for many take the place of draws
_CELLS = 2**20  # indices held at a time


def drawn_sums(columns: np.ndarray, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """The sums [draws, K] of columns [M, K] over units drawn with replacement."""
    return np.concatenate(
        [columns[units].sum(axis=1) for units in _drawn(len(columns), draws, seed)]
    )


def ratio_standard_error(numerators: np.ndarray, denominators: np.ndarray) -> float:
    """Of sum(numerators) / sum(denominators) [M]; NaN for a single unit."""
    if len(numerators) < 2:
        return math.nan
    if len(numerators) > LARGE:
        parts = numerators - numerators.sum() / denominators.sum() * denominators
        return mean_standard_error(parts) / float(denominators.mean())
    sums = drawn_sums(np.stack([numerators, denominators], axis=1))
    return scatter(sums[:, 0] / sums[:, 1], len(numerators))


def mean_standard_error(values: np.ndarray) -> float:
    """Of a mean of values [M], without drawing; NaN for a single one."""
    if len(values) < 2:
        return math.nan
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def scatter(figures: np.ndarray, units: int) -> float:
    """The standard error that the drawn figures [draws] show, of so many units."""
    return float(figures.std(ddof=1)) * math.sqrt(units / (units - 1))


def _drawn(units: int, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Which units each draw has: arrays [some draws, units]."""
    generator = np.random.default_rng(seed)
    rows = max(1, _CELLS // units)
    for start in range(0, draws, rows):
        yield generator.integers(0, units, (min(rows, draws - start), units))

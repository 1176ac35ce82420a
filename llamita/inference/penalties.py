"""What makes single tokens likelier or less likely, or rules them out, before the temperature.

Each function takes one row's logits [V] and gives new ones; `ids` [N] are different tokens of it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from llamita.inference.backend import Logits
from llamita.inference.filters import Places


def apply_repetition_penalty(logits: Logits, ids: Places, penalty: float) -> Logits:
    """Divide the positive and multiply the negative logits of `ids` (CTRL, arXiv:1909.05858)."""
    result: Logits = logits.copy()
    values = result[ids]
    factor = np.float32(penalty)
    result[ids] = np.where(values > 0, values / factor, values * factor)
    return result


def apply_frequency_penalties(
    logits: Logits, ids: Places, counts: NDArray[np.float32], frequency: float, presence: float
) -> Logits:
    """Take `frequency` times the count [N], and `presence` once, off the logits of `ids`."""
    result: Logits = logits.copy()
    result[ids] -= np.float32(frequency) * counts + np.float32(presence)
    return result


def add_bias(logits: Logits, ids: Places, biases: NDArray[np.float32]) -> Logits:
    """Add `biases` [N] to the logits of `ids`."""
    result: Logits = logits.copy()
    result[ids] += biases
    return result


def mask_out(logits: Logits, ids: Places) -> Logits:
    """Rule `ids` out: their logits become minus infinity."""
    result: Logits = logits.copy()
    result[ids] = -math.inf
    return result

"""Draws a token from weights, by noise that belongs to the token and not to its place in a sum.

Reading one uniform number off the cumulated distribution is the usual way. But a difference of 1e-5
in the logits, which is what a batch differs by from a single row, then moves the borders of all
tokens a little, and at a temperature of 1 about one draw in several hundred falls on another token.
Here each token has a random clock of its own, and the one that rings first is drawn (the Gumbel-max
trick, or exponential race): the same differences matter only where two tokens ring at nearly the
same time, which is as rare as a near tie in greedy decoding.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from llamita.inference.params import MAX_SEED

Key: TypeAlias = int
"""64 random bits: the noise of one draw."""

_UNIT = 2.0**-32


class NoiseStream:
    """A key for each draw of one row, from its seed; None takes a new seed.

    The raw 64-bit numbers of PCG64, which are the same in every version of NumPy and on every
    machine, drawn in blocks, so that a step costs no call into the generator.
    """

    _BLOCK = 64

    def __init__(self, seed: int | None) -> None:
        self._generator = np.random.PCG64(secrets.randbelow(MAX_SEED) if seed is None else seed)
        self._block: list[Key] = []

    def next(self) -> Key:
        """The key of the next draw."""
        if not self._block:
            self._block = self._generator.random_raw(self._BLOCK).tolist()[::-1]
        return self._block.pop()


def race(weights: NDArray[np.float32], ids: NDArray[np.intp] | None, key: Key) -> int:
    """The place of one weight, drawn with a probability of its share of their sum.

    weights: [N], none negative, at least one above 0. ids: the token at each place, which its noise
    belongs to; None where they are the places themselves. What has weight 0 is never given.
    """
    bits = _bits(_numbered(len(weights)) if ids is None else ids.astype(np.uint32), key)
    # A clock rings after -log(1 - u) / weight, u uniform. That is no less than u / weight, which is
    # cheap: the exact time is only needed of those that could yet be first.
    uniform = bits.astype(np.float32)
    uniform += np.float32(0.5)
    rates = weights / uniform
    first = rates.argmax()
    near = np.flatnonzero(rates >= np.float32(_rates(weights[first], bits[first]) * (1 - 1e-5)))
    return int(near[_rates(weights[near], bits[near]).argmax()])


def _rates(weights: NDArray[np.float32], bits: NDArray[np.uint32]) -> NDArray[np.float64]:
    """How soon clocks ring: the weight over the exponential variable, in units of 2^-32."""
    uniform = (bits.astype(np.float64) + 0.5) * _UNIT
    rates: NDArray[np.float64] = weights.astype(np.float64) / (-np.log1p(-uniform) / _UNIT)
    return rates


def _bits(ids: NDArray[np.uint32], key: Key) -> NDArray[np.uint32]:
    """32 random bits for each id: two rounds of an integer hash, a half of the key in each."""
    bits: NDArray[np.uint32] = ids * np.uint32(0x9E3779B1)
    for half in (key & 0xFFFFFFFF, key >> 32):
        bits += np.uint32(half)
        bits ^= bits >> np.uint32(16)
        bits *= np.uint32(0x21F0AAAD)
        bits ^= bits >> np.uint32(15)
        bits *= np.uint32(0x735A2D97)
        bits ^= bits >> np.uint32(15)
    return bits


@lru_cache(maxsize=4)
def _numbered(count: int) -> NDArray[np.uint32]:
    return np.arange(count, dtype=np.uint32)

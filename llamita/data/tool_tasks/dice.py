"""Random choices that are the same in every Python: built on `random()` alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Seeded by a text. Only `Random.random` is promised to give the same in later Pythons."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def below(self, end: int) -> int:
        """A whole number from 0 to end - 1."""
        return int(self._random() * end)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def pick_weighted(self, weights: Sequence[tuple[float, T]]) -> T:
        """One of the options, with weights that need not sum to 1."""
        point = self._random() * sum(weight for weight, _ in weights)
        for weight, option in weights:
            point -= weight
            if point < 0:
                return option
        return weights[-1][1]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """All options in a random order."""
        rest = list(options)
        return [rest.pop(self.below(len(rest))) for _ in options]

    def different(self, count: int, make: Callable[[Dice], T]) -> list[T]:
        """So many that differ, in the order they were made."""
        found: dict[T, None] = {}
        while len(found) < count:
            found[make(self)] = None
        return list(found)

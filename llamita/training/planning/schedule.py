"""How long a planned run goes on, how often it is validated, and which way it is run.

Compiled, a run starts later and its steps are quicker; which of the two is better depends on the
steps that the text is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_LOOKING = 0.05  # of the time goes into validations
_MOST_LOOKS = 10


@dataclass(frozen=True)
class Way:
    """A way to run, compiled or not, in seconds.

    Attributes:
        before: from the start of the command to the first step.
        step: of a step.
        look: of a validation with its sample and save.
    """

    before: float
    step: float
    look: float
    is_compiled: bool = False

    def looks(self, seconds: float) -> int:
        """How often to validate a run of so many seconds."""
        return max(1, min(_MOST_LOOKS, int(_LOOKING * seconds / self.look)))

    def most_steps(self, seconds: float) -> int:
        """How many fit beside the validations; at least one is taken."""
        beside = self.before + self.looks(seconds) * self.look
        return max(1, int((seconds - beside) / self.step))


@dataclass(frozen=True)
class Schedule:
    """Steps and validations of a run, of the steps that would fit, and the seconds of it all."""

    way: Way
    steps: int
    most_steps: int
    looks: int
    seconds: float


def best_schedule(
    ways: Sequence[Way], seconds: float, useful_steps: Callable[[int], int]
) -> Schedule:
    """The way that takes the most of the useful steps in `seconds`; of those that take as many,
    the quickest.

    useful_steps: of up to so many steps, those with the best forecast.
    """
    useful = useful_steps(max(way.most_steps(seconds) for way in ways))
    found = [_schedule(way, seconds, useful) for way in ways]
    return min(found, key=lambda one: (-one.steps, one.seconds))


def _schedule(way: Way, seconds: float, useful: int) -> Schedule:
    most = way.most_steps(seconds)
    steps = min(useful, most)
    training = way.before + steps * way.step
    looks = way.looks(seconds if steps == most else training)
    return Schedule(way, steps, most, looks, training + looks * way.look)

"""Timers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Annotated, Any

_LONGEST = 7 * 24 * 3600
_MOST = 100


class Timers:
    """Timers that count down by a clock, in seconds. They do not ring: they are asked.

    A number is not used again. Those that are over are listed until their place is needed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._timers: dict[int, tuple[float, str]] = {}  # when each is over, and its label
        self._last = 0

    def set_timer(
        self,
        seconds: Annotated[int, {"minimum": 1, "maximum": _LONGEST}],
        label: Annotated[str, {"maxLength": 100}] = "",
    ) -> Any:
        """Set a timer.

        Args:
            seconds: After how many seconds it is over.
            label: What it is for.
        """
        now = self._clock()
        over = [number for number, (end, _) in self._timers.items() if end <= now]
        if len(self._timers) - len(over) >= _MOST:
            raise ValueError(f"{_MOST} timers are running already; cancel one first")
        if len(self._timers) >= _MOST:  # the oldest that is over is forgotten
            del self._timers[over[0]]
        self._last += 1
        self._timers[self._last] = (now + seconds, label)
        return {"timer": self._last, "seconds": seconds, "label": label}

    def list_timers(self) -> Any:
        """List all timers with the seconds that each has left; 0 is over."""
        now = self._clock()
        return [
            {"timer": number, "label": label, "seconds_left": max(0, math.ceil(end - now))}
            for number, (end, label) in self._timers.items()
        ]

    def cancel_timer(self, timer: Annotated[int, {"minimum": 1}]) -> Any:
        """Cancel a timer.

        Args:
            timer: The timer's number.
        """
        if timer not in self._timers:
            raise ValueError(f"there is no timer {timer}")
        _, label = self._timers.pop(timer)
        return {"cancelled": timer, "label": label}

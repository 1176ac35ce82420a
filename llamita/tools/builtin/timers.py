"""Timers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Annotated, Any

_LONGEST = 7 * 24 * 3600
_MOST = 100


class Timers:
    """Timers that count down by a clock, in seconds. They do not ring: they are asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: list[tuple[float, str]] = []

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
        if len(self._ends) >= _MOST:
            raise ValueError(f"there are {_MOST} timers already")
        self._ends.append((self._clock() + seconds, label))
        return {"timer": len(self._ends), "seconds": seconds, "label": label}

    def list_timers(self) -> Any:
        """List all timers with the seconds that each has left; 0 is over."""
        now = self._clock()
        return [
            {"timer": number, "label": label, "seconds_left": max(0, math.ceil(end - now))}
            for number, (end, label) in enumerate(self._ends, start=1)
        ]

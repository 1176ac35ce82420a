"""The clock of a run: how long it has trained, and how long ago it was saved."""

from __future__ import annotations

import time


class Pace:
    """Counts from now on, beyond the `seconds` that earlier calls of the run took."""

    def __init__(self, seconds: float) -> None:
        self._saved_at = time.monotonic()
        self._started = self._saved_at - seconds

    @property
    def seconds(self) -> float:
        """Of training, of all calls."""
        return time.monotonic() - self._started

    @property
    def minutes_unsaved(self) -> float:
        """Since the last save, or since this call began."""
        return (time.monotonic() - self._saved_at) / 60

    def saved(self) -> None:
        """Note that a save began."""
        self._saved_at = time.monotonic()

"""Ctrl-C asks politely: the step in progress is finished, then the run saves and stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether the user asked to stop."""

    asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: the first signal is noted, a second one stops at once."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def noted_interrupts() -> Iterator[Interrupt]:
    """Inside the block, Ctrl-C, SIGTERM and a closed terminal are noted instead of acted on.

    Signals reach the main thread alone; elsewhere nothing is changed.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    signals = [signal.Signals[name] for name in names if hasattr(signal, name)]
    previous = [signal.signal(name, interrupt.ask) for name in signals]
    try:
        yield interrupt
    finally:
        for name, handler in zip(signals, previous, strict=True):
            signal.signal(name, handler)

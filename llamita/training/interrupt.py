"""Ctrl-C asks politely: the step in progress is finished, then the run saves and stops."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class InterruptWatch:
    """While entered, the first Ctrl-C (or SIGTERM) only sets `asked`; a second one stops at once.

    Signals reach the main thread alone; elsewhere this does nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> InterruptWatch:
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGINT, signal.SIGTERM):
                self._previous[name] = signal.signal(name, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name, handler in self._previous.items():
            signal.signal(name, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

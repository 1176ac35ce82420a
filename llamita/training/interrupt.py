"""Ctrl-C asks politely: the step in progress is finished, then the run saves and stops.

What saves nothing stops at once instead, and cleans up.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether the user asked to stop. A second signal stops at once, unless it is `patient`."""

    def __init__(self, *, patient: bool = False) -> None:
        self.asked = False
        self._patient = patient

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        if self.asked and not self._patient:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def noted_interrupts(*, patient: bool = False) -> Iterator[Interrupt]:
    """Inside the block, Ctrl-C, SIGTERM and a closed terminal are noted instead of acted on.

    Signals reach the main thread alone; elsewhere nothing is changed.

    Args:
        patient: note a second signal as well. A rank gets one from SLURM and the same one again
            from torchrun, which kills it if it takes too long.
    """
    interrupt = Interrupt(patient=patient)
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    with _handled(("SIGINT", "SIGTERM", "SIGHUP"), interrupt.ask):
        yield interrupt


@contextmanager
def raised_ends() -> Iterator[None]:
    """Inside the block, SIGTERM and a closed terminal raise KeyboardInterrupt as Ctrl-C does, so
    that temporary folders go away. Signals reach the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handled(("SIGTERM", "SIGHUP"), _raise):
        yield


def _raise(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


@contextmanager
def _handled(
    names: tuple[str, ...], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Inside the block, `handler` gets these signals; Windows has no SIGHUP."""
    signals = [signal.Signals[name] for name in names if hasattr(signal, name)]
    previous = [signal.signal(name, handler) for name in signals]
    try:
        yield
    finally:
        for name, before in zip(signals, previous, strict=True):
            signal.signal(name, before)

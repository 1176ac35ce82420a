"""Whom a run tells how it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Observer:
    """Where a run reports to: lines of text, and the state after each step.

    `on_step` is called with the step, all steps, the loss and the tokens per second; `on_log` with
    what is written to the log of a step, `on_late_stop` where the user asked to stop when the last
    step was on its way, so that the run ended all the same.
    """

    say: Callable[[str], None]
    on_step: Callable[[int, int, float, float], None]
    on_log: Callable[[dict[str, Any]], None] = lambda values: None
    on_late_stop: Callable[[], None] = lambda: None


SILENT = Observer(say=lambda text: None, on_step=lambda step, steps, loss, rate: None)


def one_line(text: str, longest: int = 200) -> str:
    """For a terminal: no line breaks, and no control characters, which could steer it."""
    line = "".join(c if c.isprintable() else "·" for c in " ".join(text.split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"

"""Progress on stderr: a bar in a terminal, a line every so often elsewhere."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

_SECONDS_BETWEEN_LINES = 15.0


class ProgressBar:
    """Counts work done towards a total; made by `progress_bar`."""

    def __init__(self, label: str, total: float | None, unit: str, console: Console) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.console = console
        self.done = 0.0
        self._said = time.monotonic()
        # The rate counts from the first update: what came before (resuming, compiling) is no pace.
        self._first: tuple[float, float] | None = None
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                _RateColumn(unit),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )

    def update(self, done: float, note: str = "") -> None:
        """Say that `done` units are finished in all; `note` stands beside the bar."""
        self.done = done
        if self._first is None:
            self._first = (time.monotonic(), done)
        if self._progress is not None:
            if self._task is None:
                self._task = self._progress.add_task(self.label, total=self.total, note=note)
            self._progress.update(self._task, completed=done, total=self.total, note=note)
        elif time.monotonic() - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            self.console.print(self._line(note), highlight=False, soft_wrap=True)

    def advance(self, amount: float, note: str = "") -> None:
        """Say that `amount` more units are finished."""
        self.update(self.done + amount, note)

    def say(self, text: str) -> None:
        """Print a line of its own, above the bar."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _line(self, note: str) -> str:
        started, before = self._first or (self._said, self.done)
        rate = (self.done - before) / max(self._said - started, 1e-9)
        parts = [self.label, f"{_short(self.done)}"]
        if self.total:
            parts[1] += f"/{_short(self.total)} {self.unit}"
            left = (self.total - self.done) / rate if rate else 0.0
            parts.append(f"{_short(rate)} {self.unit}/s, {_duration(left)} left")
        else:
            parts[1] += f" {self.unit}"
            parts.append(f"{_short(rate)} {self.unit}/s")
        return "  ".join([*parts, note]).rstrip()


@contextmanager
def progress_bar(label: str, total: float | None, unit: str) -> Iterator[ProgressBar]:
    """A bar for work of `total` units (None: unknown), gone when the block ends."""
    bar = ProgressBar(label, total, unit, Console(file=cast(IO[str], _Stderr()), stderr=True))
    if bar._progress is None:
        yield bar
        return
    with bar._progress:
        yield bar


def say(text: str) -> None:
    """Print a line to stderr."""
    print(text, file=_Stderr(), flush=True)


def for_terminal(text: str) -> str:
    """A model's text for stdout: to a terminal no control characters, which would steer it."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


class _Stderr(io.TextIOBase):
    """stderr, or nothing once its reader left: a long run must not die of a closed pipe.

    It is the stderr of now: while a bar is shown, rich puts something in the place of `sys.stderr`
    that writes above the bar, and the bar itself must not go through that.
    """

    def __init__(self) -> None:
        self._stderr = sys.stderr

    def write(self, text: str) -> int:
        with contextlib.suppress(BrokenPipeError):
            return self._stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stderr.flush()

    def isatty(self) -> bool:
        return self._stderr.isatty()

    def fileno(self) -> int:
        return self._stderr.fileno()


class _RateColumn(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text(f"{_short(rate)} {self.unit}/s" if rate else "")


def _short(number: float) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if suffix == 'k' else size):.1f}{suffix}"
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 60}m{whole % 60:02}s" if whole >= 60 else f"{whole}s"

"""What a run measured: `metrics.jsonl` for programs, TensorBoard events for eyes."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from llamita.files import atomic_write_text
from llamita.training.machine.disk import cannot_write

METRICS_NAME = "metrics.jsonl"

OF_THE_MACHINE = frozenset(
    {
        "tokens_per_second",
        "mfu",
        "peak_flops",
        "peak_memory_mb",
        "cuda_peak_memory_mb",
        "seconds",
        "resumed_after",
    }
)
"""Values that depend on the machine and its load; all others depend on the recipe and the data."""


class MetricsLog:
    """Appends one JSON object a line, each with its `step`.

    On resume the lines past the checkpoint are dropped: those steps are taken again.

    Raises:
        TrainingError: at any call, when the disk takes no more.
    """

    def __init__(self, run: Path, step: int) -> None:
        self._path = run / METRICS_NAME
        kept = [line for line in read_metrics(self._path) if line["step"] <= step]
        with self._naming():
            atomic_write_text(self._path, "".join(json.dumps(line) + "\n" for line in kept))
            self._file = self._path.open("a", encoding="utf-8")
            self._events = _Events(run / "tensorboard", step)

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Record `values` after `step` steps; numbers go to TensorBoard as well.

        What is not finite is left out: JSON has no word for it.
        """
        values = {
            name: value
            for name, value in values.items()
            if not isinstance(value, float) or math.isfinite(value)
        }
        with self._naming():
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            self._file.flush()
            self._events.write(step, values)

    def sync(self) -> None:
        """Flush both files to the disk; may be called from another thread."""
        with self._naming():
            os.fsync(self._file.fileno())
            self._events.flush()

    def close(self) -> None:
        """Flush and end both files."""
        with self._naming():
            try:
                self._file.close()
            finally:
                self._events.close()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise cannot_write(str(self._path), self._path, error) from error


class NoLog:
    """The log of a rank that writes none."""

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Nothing."""

    def sync(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


Log: TypeAlias = MetricsLog | NoLog


class _Events:
    """TensorBoard events, written by whoever calls.

    tensorboardX's `SummaryWriter` has a thread and a short queue for it: once that thread fails,
    as on a full disk, the training loop waits forever.
    """

    def __init__(self, directory: Path, step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        directory.mkdir(exist_ok=True)
        # An older file of this name began at this step too, so what it holds is purged by now.
        self._writer = EventsWriter(str(directory / "events"), f".{step:09d}")
        start = SessionLog(status=SessionLog.START)
        self._writer.write_event(Event(step=step + 1, session_log=start))

    def write(self, step: int, values: dict[str, Any]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar, text

        for name, value in values.items():
            is_number = isinstance(value, (int, float))
            summary = scalar(name, value) if is_number else text(name, str(value))
            self._writer.write_event(Event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file in order; it ends at the first line that is torn or damaged."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            break
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            break
        lines.append(line)
    return lines

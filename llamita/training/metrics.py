"""What a run measured: `metrics.jsonl` for programs, TensorBoard events for eyes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llamita.files import atomic_write_text

METRICS_NAME = "metrics.jsonl"


class MetricsLog:
    """Appends one JSON object a line, each with its `step`.

    On resume the lines past the checkpoint are dropped: those steps are taken again.
    """

    def __init__(self, run: Path, step: int) -> None:
        from tensorboardX import SummaryWriter

        path = run / METRICS_NAME
        kept = [line for line in read_metrics(path) if line["step"] <= step]
        atomic_write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a", encoding="utf-8")
        self._events = SummaryWriter(
            str(run / "tensorboard"), purge_step=step + 1, write_to_disk=True
        )

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Record `values` after `step` steps; numbers go to TensorBoard as well."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        for name, value in values.items():
            if isinstance(value, (int, float)):
                self._events.add_scalar(name, value, step)
            else:
                self._events.add_text(name, str(value), step)

    def close(self) -> None:
        """Flush and end both files."""
        self._file.close()
        self._events.close()


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

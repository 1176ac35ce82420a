"""What a run has left so far, read with forgiveness: a report must be had of a broken run too."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from llamita.data.manifest import MANIFEST_NAME
from llamita.errors import LlamitaError, TrainingError
from llamita.files import read_bounded, read_json
from llamita.formats.detect import LATEST, RECIPE
from llamita.formats.huggingface import CONFIG
from llamita.training.records.manifest import RUN_MANIFEST_NAME
from llamita.training.records.metrics import METRICS_NAME, read_metrics
from llamita.training.reporting.charts import Point
from llamita.training.settings.recipe_file import parse_toml

BY_SOURCE = "validation_loss/"

_LARGEST_TEXT = 1 << 20
_LARGEST_WHOLE = 1 << 63
_OF_A_STEP = ("loss", "gradient_norm")


@dataclass
class RunRecord:
    """The files of a run. What could not be read is empty or None, and named in `missing`.

    `data` says what each DATA of the run holds, by its path: as the run wrote it down, or, of an
    older run, as it stands in the DATA that is still there.
    """

    path: Path
    name: str
    lines: list[dict[str, Any]] = field(default_factory=list)
    recipe_text: str | None = None
    recipe: dict[str, Any] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)
    config_text: str | None = None
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    written: datetime | None = None
    missing: list[str] = field(default_factory=list)

    def points(self, key: str) -> list[Point]:
        """Steps and values of what was logged as `key`, as far as they are finite numbers.

        The loss of a step without a labelled token is no loss.
        """
        return [
            (line["step"], float(line[key]))
            for line in self.lines
            if _is_number(line.get(key))
            and not (key in _OF_A_STEP and line.get("skipped") == "empty")
        ]

    def values(self, key: str) -> list[float]:
        return [value for _, value in self.points(key)]

    @property
    def samples(self) -> list[tuple[int, str]]:
        """Steps and what the model wrote after them."""
        lines = [line for line in self.lines if isinstance(line.get("sample"), str)]
        return [(line["step"], line["sample"]) for line in lines]

    @property
    def skipped(self) -> list[tuple[int, str, str]]:
        """Step, kind and reason of each step that changed nothing."""
        return [
            (line["step"], str(line["skipped"]), str(line.get("reason", "")))
            for line in self.lines
            if "skipped" in line
        ]

    @property
    def resumes(self) -> list[float]:
        """After which steps the run was stopped and taken up again."""
        return self.values("resumed_after")

    @property
    def stopped_early(self) -> bool:
        """Whether validations ended it before its last step."""
        return any(line.get("stopped_early") is True for line in self.lines)

    @property
    def steps(self) -> int | None:
        """How many the whole run has, where that is known."""
        return _whole(_table(self.recipe, "length").get("steps"))

    @property
    def tokens_per_step(self) -> int | None:
        """As the recipe has it."""
        batch = _table(self.recipe, "batch")
        parts = [batch.get(name) for name in ("context_length", "sequences", "accumulation")]
        whole = [part for part in map(_whole, parts) if part]
        return math.prod(whole) if len(whole) == len(parts) else None

    @property
    def sources(self) -> list[str]:
        """The names of the DATA that have a validation loss of their own."""
        keys = {key: None for line in self.lines for key in line if key.startswith(BY_SOURCE)}
        return [key.removeprefix(BY_SOURCE) for key in keys]

    def figures(self) -> dict[str, Any]:
        """The run in numbers; None for what is not known.

        `loss` is the mean of the last logged steps in nats a token, `tokens_per_second` and `mfu`
        are medians, `seconds` those of training.
        """
        losses = self.values("loss")
        validation = self.points("validation_loss")
        bits = self.values("validation_bits_per_byte")
        step = self.lines[-1]["step"] if self.lines else 0
        recent = losses[-max(1, len(losses) // 40) :]
        return {
            "run": str(self.path),
            "step": step,
            "steps": self.steps,
            "finished": (self.steps is not None and step >= self.steps) or self.stopped_early,
            "parameters": _whole(self.manifest.get("parameters")),
            "tokens": _whole(self._last("tokens")),
            "loss": sum(recent) / len(recent) if recent else None,
            "validation_loss": validation[-1][1] if validation else None,
            "best_validation_loss": min((loss for _, loss in validation), default=None),
            "best_step": min(validation, key=lambda p: p[1])[0] if validation else None,
            "bits_per_byte": bits[-1] if bits else None,
            "best_bits_per_byte": min(bits, default=None),
            "tokens_per_second": _median(self.values("tokens_per_second")),
            "mfu": _median(self.values("mfu")),
            "peak_flops": self._last("peak_flops"),
            "peak_memory_mb": max(self.values("peak_memory_mb"), default=None),
            "cuda_peak_memory_mb": max(self.values("cuda_peak_memory_mb"), default=None),
            "seconds": self._last("seconds"),
            "skipped_steps": len(self.skipped),
            "resumed_after": [int(step) for step in self.resumes],
            "missing": self.missing,
        }

    def _last(self, key: str) -> float | None:
        values = self.values(key)
        return values[-1] if values else None


def read_record(run: Path) -> RunRecord:
    """Read what lies in a RUN, whether it is going on, was killed, or is whole.

    Raises:
        TrainingError: it is no training run.
    """
    if not (run / RECIPE).is_file() and not (run / METRICS_NAME).is_file():
        hint = "RUN is a folder that `llamita train` made."
        if (run.parent / RECIPE).is_file():
            hint = f"RUN is the folder that holds it: {run.parent}"
        what = "is no training run" if run.exists() else "is not there"
        raise TrainingError(f"{run} {what} (no {RECIPE}, no {METRICS_NAME}).", hint=hint)
    record = RunRecord(run, run.resolve().name)
    _read_metrics(record)
    record.recipe_text = _read_text(run / RECIPE, record)
    try:
        record.recipe = parse_toml(record.recipe_text or "")
    except ValueError as error:
        record.missing.append(f"{RECIPE} is no TOML: {error}")
    record.manifest = _read_table(run / RUN_MANIFEST_NAME, record)
    record.config_text = _read_text(run / LATEST / CONFIG, record)
    noted = _table(record.manifest, "sources")
    record.data = {path: _table(noted, path) for path in noted}
    for folder in _data_folders(record) if not noted else ():
        found = _read_table(Path(folder) / MANIFEST_NAME, record)
        if found:
            record.data[folder] = found
    return record


def _read_metrics(record: RunRecord) -> None:
    path = record.path / METRICS_NAME
    lines = read_metrics(path)
    record.lines = [line for line in lines if _is_number(line["step"])]
    if not path.is_file():
        record.missing.append(f"there is no {METRICS_NAME} yet")
        return
    record.written = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
    written = sum(1 for line in path.read_bytes().splitlines() if line.strip())
    if written > len(lines) + 1:  # the last one may be half written
        record.missing.append(
            f"{METRICS_NAME} is damaged in line {len(lines) + 1:,}; that line and those after it, "
            f"{written - len(lines):,} in all, are not shown"
        )


def _read_text(path: Path, record: RunRecord) -> str | None:
    try:
        return read_bounded(path, _LARGEST_TEXT).decode("utf-8", errors="replace")
    except (LlamitaError, OSError):
        record.missing.append(f"{path.relative_to(record.path)} cannot be read or is not there")
        return None


def _read_table(path: Path, record: RunRecord) -> dict[str, Any]:
    try:
        value = read_json(path)
        json.dumps(value)
    except (LlamitaError, OSError, ValueError):
        value = None
    if not isinstance(value, dict):
        record.missing.append(f"{path} cannot be read or is not there")
        return {}
    return value


def _data_folders(record: RunRecord) -> list[str]:
    """The DATA of a run, as its recipe names it or, in an older run, its manifest."""
    sources = record.recipe.get("data")
    if isinstance(sources, list):
        paths = [source.get("path") for source in sources if isinstance(source, dict)]
        found = [path for path in paths if isinstance(path, str)]
        if found:
            return found
    path = record.manifest.get("data")
    return [path] if isinstance(path, str) else []


def _table(values: dict[str, Any], name: str) -> dict[str, Any]:
    table = values.get(name)
    return table if isinstance(table, dict) else {}


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < _LARGEST_WHOLE
    return type(value) is float and math.isfinite(value)


def _whole(value: Any) -> int | None:
    return int(value) if _is_number(value) else None


def _median(values: list[float]) -> float | None:
    return median(values) if values else None

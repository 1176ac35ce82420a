"""The metrics of a run, for programs and for TensorBoard."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from llamita.training.records.metrics import MetricsLog, read_metrics


def test_steps_past_the_checkpoint_are_dropped_on_resume(tmp_path: Path) -> None:
    with closing(MetricsLog(tmp_path, 0)) as log:
        for step in (1, 2, 3):
            log.write(step, {"loss": float(step)})
    with closing(MetricsLog(tmp_path, 2)) as log:
        log.write(3, {"loss": 30.0})
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    with closing(MetricsLog(tmp_path, 0)) as log:
        log.write(1, {"loss": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [1]


def test_a_new_start_drops_the_events_of_a_killed_one(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for loss in (1.0, 2.0):
        with closing(MetricsLog(tmp_path, 0)) as log:
            log.write(1, {"loss": loss})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 2.0)]


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with closing(MetricsLog(tmp_path, 0)) as log:
        log.write(1, {"loss": 2.5, "sample": "Once"})
        log.write(2, {"loss": 2.0})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 2.5), (2, 2.0)]

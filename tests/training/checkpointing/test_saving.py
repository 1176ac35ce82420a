"""Saving beside the loop: one at a time, nothing lost, one clear error when the disk is full."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import llamita
from llamita.errors import Interrupted, TrainingError
from llamita.training.checkpointing import saving
from llamita.training.checkpointing.saving import BackgroundWriter
from llamita.training.records.metrics import MetricsLog, read_metrics
from llamita.training.run import train
from llamita.training.trainer import Trainer
from tests.training.recipes import small_recipe
from tests.training.runs import are_same, assert_same_runs, metrics_of, stop_after, weights_of


@contextmanager
def _files_no_longer_than(size: int) -> Iterator[None]:
    """To a program, a file that may not grow looks like a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _after(gate: threading.Event, order: list[str], name: str) -> Callable[[], None]:
    """Writing that takes until the gate opens."""

    def write() -> None:
        gate.wait(10)
        order.append(name)

    return write


def test_the_caller_goes_on_while_something_is_written_and_waits_at_the_end() -> None:
    gate, order = threading.Event(), []
    with BackgroundWriter() as writer:
        writer.start(_after(gate, order, "written"))
        order.append("going on")
        gate.set()
    assert order == ["going on", "written"]


def test_one_piece_is_written_after_the_other() -> None:
    gate, order = threading.Event(), []
    with BackgroundWriter() as writer:
        writer.start(_after(gate, order, "first"))
        threading.Timer(0.05, gate.set).start()
        writer.start(lambda: order.append("second"))
        assert order[0] == "first"
    assert order == ["first", "second"]


def _fail() -> None:
    raise TrainingError("no room")


def _write_badly(call: str) -> None:
    with BackgroundWriter() as writer:
        writer.start(_fail)
        if call == "start":
            writer.start(lambda: None)
        elif call == "wait":
            writer.wait()
        elif call == "raise":
            raise KeyError


@pytest.mark.parametrize("call", ["start", "wait", "end"])
def test_what_the_writing_raised_comes_out_at_the_next_call(call: str) -> None:
    with pytest.raises(TrainingError, match="no room"):
        _write_badly(call)


def test_what_the_writing_raised_comes_out_once() -> None:
    writer = BackgroundWriter()
    writer.start(_fail)
    with pytest.raises(TrainingError):
        writer.wait()
    writer.wait()


def test_an_error_of_the_loop_is_told_before_one_of_the_writing() -> None:
    with pytest.raises(KeyError):
        _write_badly("raise")


def test_a_full_disk_stops_the_run_and_leaves_the_last_checkpoint_whole(
    data: Path, tmp_path: Path
) -> None:
    recipe = small_recipe("watch.validations=1")
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(data, run, recipe, observer=stop_after(3))
    before = weights_of(run)
    with (
        _files_no_longer_than(sum(t.nbytes for t in before.values()) + 20_000),
        pytest.raises(TrainingError, match="the checkpoint of step 6: File too large"),
    ):
        train(data, run, recipe)
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-0000003"]
    llamita.load(run)
    train(data, run, recipe)
    train(data, tmp_path / "whole", recipe)
    assert_same_runs(tmp_path / "whole", run)


def test_a_disk_that_is_full_at_the_first_save_says_so(data: Path, tmp_path: Path) -> None:
    with (
        _files_no_longer_than(50_000),
        pytest.raises(TrainingError, match=r"step 3: .*; the disk of .* MB free") as e,
    ):
        train(data, tmp_path / "run", small_recipe())
    assert "Make room and run the same command again" in (e.value.hint or "")
    assert not list((tmp_path / "run").rglob("*.tmp"))
    assert train(data, tmp_path / "run", small_recipe()).steps == 6


def test_a_disk_that_is_full_at_a_resume_leaves_the_model_as_it_was(
    data: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(data, run, small_recipe(), observer=stop_after(3))
    before = weights_of(run)
    with (
        _files_no_longer_than(50_000),
        pytest.raises(TrainingError, match=r"cannot write the model .*latest: File too large"),
    ):
        train(data, run, small_recipe())
    assert are_same(before, weights_of(run))
    assert train(data, run, small_recipe()).steps == 6


def test_a_log_that_cannot_grow_is_the_same_error_and_no_endless_wait(
    data: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with (
        _files_no_longer_than(12_000),
        pytest.raises(TrainingError, match=r"cannot write .*metrics\.jsonl: File too large"),
    ):
        train(data, run, small_recipe("watch.validations=1", "watch.log_every=1", steps=200))
    train(data, run, small_recipe("watch.validations=1", steps=30))
    assert len(metrics_of(run)) == 31


def test_the_log_reaches_the_disk_before_the_checkpoint_counts(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = MetricsLog.sync

    def sync(log: MetricsLog) -> None:
        real(log)
        run = tmp_path / "run"
        visible = len(list((run / "checkpoints").glob("step-*")))
        seen.append((visible, [line["step"] for line in read_metrics(run / "metrics.jsonl")][-1]))

    monkeypatch.setattr(MetricsLog, "sync", sync)
    monkeypatch.setattr(Trainer, "take_step", _slowly(Trainer.take_step))
    train(data, tmp_path / "run", small_recipe())
    assert seen[0][0] == 0
    assert seen[0][1] >= 3
    assert seen[1] == (1, 6)


def test_the_models_are_there_before_the_checkpoint_counts(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at any moment, `latest/` is no older than the newest checkpoint."""
    seen = []
    checkpoints = tmp_path / "run" / "checkpoints"

    def seeing(write: Callable[..., None], place: int) -> Callable[..., None]:
        def then(*arguments: Any) -> None:
            write(*arguments)
            there = sorted(path.name for path in checkpoints.glob("step-*"))
            seen.append((arguments[place].name, there))

        return then

    monkeypatch.setattr(saving, "write_model", seeing(saving.write_model, 2))
    monkeypatch.setattr(saving, "_write_again", seeing(saving._write_again, 1))
    train(data, tmp_path / "run", small_recipe())
    assert seen == [
        ("best", []),
        ("latest", []),
        ("best", ["step-0000003"]),
        ("latest", ["step-0000003"]),
    ]
    best, latest = (tmp_path / "run" / name for name in ("best", "latest"))
    names = sorted(path.name for path in best.iterdir())
    assert names == sorted(path.name for path in latest.iterdir())
    same = [name for name in names if (best / name).samefile(latest / name)]
    assert same == ["model.safetensors"]
    assert all((best / name).read_bytes() == (latest / name).read_bytes() for name in names)


def _slowly(take_step):  # type: ignore[no-untyped-def]
    def slow(trainer: Trainer):  # type: ignore[no-untyped-def]
        trainer.writer.wait()
        return take_step(trainer)

    return slow


def test_milestones_are_saved_and_kept(data: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        "watch.validations=1", "checkpoints.keep_every=4", "checkpoints.keep=1", steps=10
    )
    train(data, tmp_path / "run", recipe)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-0000004", "step-0000008", "step-0000010"]


def test_ctrl_c_says_that_all_is_saved_only_when_it_is(data: Path, tmp_path: Path) -> None:
    with _files_no_longer_than(50_000), pytest.raises(TrainingError, match="cannot write"):
        train(data, tmp_path / "run", small_recipe(), observer=stop_after(2))

"""Runs that end when validations show nothing better any more."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from llamita.errors import Interrupted
from llamita.training.best import BestSoFar
from llamita.training.looking import Look, Watcher
from llamita.training.records.metrics import read_metrics
from llamita.training.reporting.record import read_record
from llamita.training.run import train
from tests.training.recipes import small_recipe
from tests.training.runs import assert_same_runs, listener, stop_after, weights_of


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Validation losses after steps 1, 2, 3, …, in place of those that would be measured."""
    given = [3.0, 2.0, 2.5, 2.4, 2.3, 2.2]

    def look(watcher: Watcher, loss_sum: object, step: int, *, samples: bool) -> Look:
        return Look(given[step - 1], {"validation_loss": given[step - 1]}, "")

    monkeypatch.setattr(Watcher, "look", look)
    return given


PATIENT = ("watch.validate_every=1", "watch.patience=2")


def test_a_run_ends_after_so_many_validations_without_a_better_one(
    data: Path, tmp_path: Path, losses: list[float]
) -> None:
    observer, said = listener()
    summary = train(data, tmp_path / "run", small_recipe(*PATIENT), observer=observer)
    assert (summary.steps, summary.stopped_early) == (4, True)
    assert (summary.best_step, summary.best_loss) == (2, 2.0)
    assert [line for line in said if "2 validations without a better loss than 2.000" in line]
    train(data, tmp_path / "two", small_recipe("watch.validate_every=1", steps=2))
    best = weights_of(tmp_path / "run", "best")
    assert best.keys() == weights_of(tmp_path / "two").keys()
    figures = read_record(tmp_path / "run").figures()
    assert (figures["finished"], figures["step"], figures["best_step"]) == (True, 4, 2)


def test_what_ended_early_has_ended_for_good(
    data: Path, tmp_path: Path, losses: list[float]
) -> None:
    train(data, tmp_path / "run", small_recipe(*PATIENT))
    before = read_metrics(tmp_path / "run" / "metrics.jsonl")
    again = train(data, tmp_path / "run", small_recipe(*PATIENT))
    assert (again.was_finished, again.stopped_early, again.steps) == (True, True, 4)
    assert read_metrics(tmp_path / "run" / "metrics.jsonl") == before


def test_patience_is_kept_over_a_resume(data: Path, tmp_path: Path, losses: list[float]) -> None:
    train(data, tmp_path / "whole", small_recipe(*PATIENT))
    with pytest.raises(Interrupted):
        train(data, tmp_path / "parts", small_recipe(*PATIENT), observer=stop_after(3))
    assert train(data, tmp_path / "parts").steps == 4
    assert_same_runs(tmp_path / "whole", tmp_path / "parts")


def test_without_patience_a_run_goes_on(data: Path, tmp_path: Path, losses: list[float]) -> None:
    summary = train(data, tmp_path / "run", small_recipe("watch.validate_every=1"))
    assert (summary.steps, summary.stopped_early, summary.best_step) == (6, False, 2)


def test_the_best_so_far_counts_what_came_after_it() -> None:
    best = BestSoFar(patience=2)
    assert [best.note(loss, step) for step, loss in enumerate([3.0, 3.0, 2.0])] == [
        True,
        False,
        True,
    ]
    assert not best.ends_run
    other = BestSoFar(patience=2)
    other.load_state_dict(best.state_dict())
    other.note(2.0, 4)
    other.note(math.inf, 5)
    assert (other.ends_run, other.step, other.loss) == (True, 2, 2.0)
    other.load_state_dict({"best_loss": 2.0})  # of an earlier version
    assert not other.ends_run

"""Whole runs of several ranks go on where they stopped: to the bit, or with others of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import llamita
from llamita.training.settings.recipe import Recipe
from tests.training.ranks.parallel_jobs import Accident, Ran, run
from tests.training.ranks.processes import all_well, run_ranks
from tests.training.ranks.rank_jobs import limit_files
from tests.training.recipes import small_recipe
from tests.training.runs import are_same, assert_same_runs, metrics_of, weights_of


def _recipe(kind: str, *settings: str, steps: int = 20) -> Recipe:
    return small_recipe(
        f"machine.parallel={kind}", "optimizer.learning_rate=0.003", *settings, steps=steps
    )


@pytest.mark.parametrize(("kind", "optimizer"), [("fsdp", "muon"), ("ddp", "adamw")])
def test_steps_11_to_20_after_a_resume_equal_an_uninterrupted_runs_to_the_bit(
    data: Path, tmp_path: Path, kind: str, optimizer: str
) -> None:
    """Each rank draws dropout masks of its own, and has to go on with those."""
    recipe = _recipe(
        kind, f"optimizer.name={optimizer}", "model.residual_dropout=0.2", "batch.accumulation=2"
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    ran: list[Ran] = all_well(run_ranks(2, run, data, whole, recipe))
    assert are_same(weights_of(whole), ran[0].weights)
    stopped: list[Ran] = all_well(run_ranks(2, run, data, parts, recipe, Accident("signal", 1, 10)))
    assert "after step 10 of 20; everything is saved" in stopped[0].error
    resumed: list[Ran] = all_well(run_ranks(2, run, data, parts, recipe))
    assert "resuming after step 10 of 20" in resumed[0].said
    assert_same_runs(whole, parts)


def test_a_run_of_one_process_goes_on_with_four_and_back(data: Path, tmp_path: Path) -> None:
    folder, alone = tmp_path / "run", tmp_path / "alone"
    recipe = _recipe("fsdp", steps=6)
    all_well(run_ranks(1, run, data, alone, recipe))
    for ranks, step in ((1, 2), (4, 4)):
        all_well(run_ranks(ranks, run, data, folder, recipe, Accident("signal", 0, step)))
    all_well(run_ranks(1, run, data, folder, recipe))
    for line, other in zip(metrics_of(folder), metrics_of(alone), strict=True):
        assert line["step"] == other["step"]
        for name in ("loss", "gradient_norm", "validation_loss"):
            if name in other:
                assert line[name] == pytest.approx(other[name], rel=2e-5)


def run_on_a_full_disk(data: Path, folder: Path, recipe: Recipe) -> Ran:
    """Train with a disk that is full for rank 1."""
    if os.environ["RANK"] == "1":
        limit_files(20_000)
    return run(data, folder, recipe)


def test_a_disk_that_is_full_for_one_rank_ends_the_run_of_all(data: Path, tmp_path: Path) -> None:
    folder, recipe = tmp_path / "run", _recipe("fsdp", "watch.validations=1", steps=6)
    all_well(run_ranks(2, run, data, folder, recipe, Accident("signal", 0, 3)))
    ran: list[Ran] = all_well(run_ranks(2, run_on_a_full_disk, data, folder, recipe))
    assert ran[0].error == ran[1].error
    assert "rank 1: cannot write the checkpoint of step 6: File too large" in ran[0].error
    assert [one.is_told for one in ran] == [False, True]
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-0000003"]
    llamita.load(folder)
    assert all_well(run_ranks(2, run, data, folder, recipe))[0].steps == 6

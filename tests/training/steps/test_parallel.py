"""The same run under any number of ranks: its steps, its rows and its weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from llamita.data.training_data import TrainingData
from llamita.errors import TrainingError
from llamita.training.ranks.world import World
from llamita.training.run import train
from llamita.training.settings.recipe import Recipe
from llamita.training.settings.recipe_file import load_recipe
from llamita.training.steps.parallel import share_rows
from tests.training.ranks.parallel_jobs import (
    Accident,
    Ran,
    batch_of,
    gradients_of,
    run,
    run_for_minutes,
    run_in_own,
    run_on_own,
    run_with_compiler,
)
from tests.training.ranks.processes import Killed, all_well, run_ranks
from tests.training.recipes import small_recipe
from tests.training.runs import are_same, metrics_of, weights_of

STEPS = 6


def recipe_for(optimizer: str, *settings: str) -> Recipe:
    """Steps of 2 × 4 rows of a model that four ranks cannot divide evenly: a width of 66, and norms
    of 6 numbers, of which the last rank has none."""
    return small_recipe(
        f"optimizer.name={optimizer}",
        "optimizer.learning_rate=0.003",
        "batch.accumulation=2",
        "model.hidden_size=66",
        "model.head_dim=6",
        "model.use_qk_norm=true",
        "watch.validation_tokens=448",  # 14 rows, which do not fill the batches
        *settings,
        steps=STEPS,
    )


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of one process with an optimizer."""
    found: dict[str, Path] = {}

    def of(optimizer: str) -> Path:
        if optimizer not in found:
            found[optimizer] = tmp_path_factory.mktemp("alone") / optimizer
            train(data, found[optimizer], recipe_for(optimizer))
        return found[optimizer]

    return of


def assert_as_alone(ran: Path, alone: Path) -> None:
    """The logs differ by the order of sums alone; samples are not compared."""
    lines, expected = metrics_of(ran), metrics_of(alone)
    assert [line["step"] for line in lines] == [line["step"] for line in expected]
    for line, other in zip(lines, expected, strict=True):
        numbers = {name: value for name, value in other.items() if isinstance(value, (int, float))}
        assert {name: line[name] for name in numbers} == pytest.approx(numbers, rel=2e-5)
    weights, expected_weights = weights_of(ran), weights_of(alone)
    assert weights.keys() == expected_weights.keys()
    for name, values in expected_weights.items():
        torch.testing.assert_close(weights[name], values, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize(
    ("optimizer", "ranks", "kind", "settings"),
    [
        ("adamw", 2, "fsdp", ()),
        ("adamw", 4, "ddp", ()),
        ("muon", 2, "ddp", ()),
        ("muon", 4, "fsdp", ("machine.activation_checkpointing=true",)),
    ],
)
def test_a_run_of_several_ranks_is_that_of_one(
    data: Path,
    tmp_path: Path,
    alone: Callable[[str], Path],
    optimizer: str,
    ranks: int,
    kind: str,
    settings: tuple[str, ...],
) -> None:
    recipe = recipe_for(optimizer, f"machine.parallel={kind}", *settings)
    ran: list[Ran] = all_well(run_ranks(ranks, run, data, tmp_path / "run", recipe))
    assert_as_alone(tmp_path / "run", alone(optimizer))
    assert all(are_same(one.weights, ran[0].weights) for one in ran)
    rows = 8 // ranks
    parts = " in 2 parts" if rows > 4 else ""
    assert f"{ranks} ranks, {kind} (as asked); each reads {rows} rows a step{parts}" in ran[0].said
    assert [one.said for one in ran[1:]] == [[]] * (ranks - 1)
    has_samples = any("sample" in line for line in metrics_of(tmp_path / "run"))
    assert has_samples == (kind == "ddp")


@pytest.mark.parametrize(("optimizer", "kind"), [("muon", "fsdp"), ("adamw", "ddp")])
def test_other_ranks_go_on_with_the_same_rows_and_losses(
    data: Path, tmp_path: Path, alone: Callable[[str], Path], optimizer: str, kind: str
) -> None:
    """Four ranks, then two, then one: no row is left out and none comes twice."""
    folder, rows = tmp_path / "run", []
    recipe = recipe_for(optimizer, f"machine.parallel={kind}")
    stops = [Accident("signal", 3, 2), Accident("signal", 0, 4), None]
    for ranks, stop in zip((4, 2, 1), stops, strict=True):
        ran: list[Ran] = all_well(run_ranks(ranks, run, data, folder, recipe, stop))
        if stop is not None:
            said = f"stopped after step {stop.step} of {STEPS}; everything is saved."
            assert [one.error for one in ran] == [f"Interrupted: {said}"] * ranks
            assert [one.is_told for one in ran] == [False, *[True] * (ranks - 1)]
        taken = STEPS - 4 if stop is None else 2
        rows += _in_order(ran, taken)
    assert_as_alone(folder, alone(optimizer))
    loader = TrainingData.open([data]).loader(32, 8, recipe.seed)
    expected = [loader.next_batch().input_ids for _ in range(STEPS)]
    assert torch.equal(torch.cat(rows), torch.cat(expected))
    assert "ranks was 2 and is 1: the numbers may differ in their last bits" in ran[0].said


def _in_order(ran: list[Ran], steps: int) -> list[torch.Tensor]:
    """The rows of steps in the order in which they were drawn; the ranks read further ahead."""
    batches = steps * 8 // (len(ran) * ran[0].rows[0].shape[0])
    return [one.rows[number] for number in range(batches) for one in ran]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_3_and_97_labelled_tokens_on_two_ranks_equal_one_batch_of_100(kind: str) -> None:
    batches = [batch_of(3), batch_of(97), batch_of(0), batch_of(50)]
    [expected] = all_well(run_ranks(1, gradients_of, batches, "ddp"))
    for loss, tokens, norm, gradients in all_well(run_ranks(2, gradients_of, batches, kind)):
        assert tokens == expected[1] == 150
        assert (loss, norm) == pytest.approx((expected[0], expected[2]), rel=1e-5)
        assert gradients.keys() == expected[3].keys()
        for name, values in expected[3].items():
            torch.testing.assert_close(gradients[name], values, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "is_late", "reason"),
    [
        ("ddp", True, "another rank could not compile"),
        ("fsdp", False, "rank 1: no compiler here"),
    ],
)
def test_where_ranks_cannot_compile_all_go_on_without(
    data: Path,
    tmp_path: Path,
    alone: Callable[[str], Path],
    kind: str,
    is_late: bool,
    reason: str,
) -> None:
    recipe = recipe_for("adamw", f"machine.parallel={kind}", "machine.compile=on")
    ran: list[Ran] = all_well(
        run_ranks(2, run_with_compiler, data, tmp_path / "run", recipe, (1,), is_late)
    )
    lines = [line for line in ran[0].said if "without compilation" in line]
    assert lines == [f"going on without compilation: {reason}"]
    assert_as_alone(tmp_path / "run", alone("adamw"))


def test_where_a_rank_cannot_compile_its_part_of_a_sharded_pass_the_run_ends(
    data: Path, tmp_path: Path
) -> None:
    """It cannot take the pass anew: the other ranks are in the middle of it."""
    recipe = recipe_for("adamw", "machine.parallel=fsdp", "machine.compile=on")
    ran: list[Ran] = all_well(
        run_ranks(2, run_with_compiler, data, tmp_path / "run", recipe, (1,), True)
    )
    said = "TrainingError: rank 1: the steps cannot be compiled: no compiler here"
    assert (ran[1].error, ran[1].is_told) == (said, False)
    assert ran[0].is_told


def test_a_run_that_one_rank_does_not_see_is_not_read(data: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "here", tmp_path / "there"]
    folders[0].mkdir()
    (folders[0] / "recipe.toml").write_text("seed = 1", encoding="utf-8")
    ran: list[Ran] = all_well(run_ranks(2, run_in_own, data, folders, recipe_for("adamw")))
    assert ran[0].error.startswith(f"TrainingError: rank 1: {folders[1]} on ")
    assert ran[0].error.endswith(" is not the folder that rank 0 writes to.")
    assert [one.is_told for one in ran] == [False, True]
    assert [path.name for path in folders[0].iterdir()] == ["recipe.toml"]


def test_ranks_that_read_other_data_are_refused(
    data: Path, other_data: Path, tmp_path: Path
) -> None:
    ran: list[Ran] = all_well(
        run_ranks(2, run_on_own, [data, other_data], tmp_path / "run", recipe_for("adamw"))
    )
    assert "rank 1 reads another DATA in " in ran[0].error
    assert [one.is_told for one in ran] == [False, True]
    assert not (tmp_path / "run").exists()


def test_minutes_become_the_same_steps_on_all_ranks(data: Path, tmp_path: Path) -> None:
    recipe = small_recipe("machine.parallel=fsdp")
    ran: list[Ran] = all_well(run_ranks(2, run_for_minutes, data, tmp_path / "run", recipe))
    steps = load_recipe(tmp_path / "run" / "recipe.toml").length.steps
    assert steps is not None
    assert [one.steps for one in ran] == [steps, steps]
    recipe = small_recipe("machine.parallel=fsdp", steps=steps)
    counted: list[Ran] = all_well(run_ranks(2, run, data, tmp_path / "counted", recipe))
    assert all(are_same(one.weights, counted[0].weights) for one in ran)


def test_a_row_that_one_rank_cannot_read_ends_the_run_with_its_number(
    data: Path, tmp_path: Path
) -> None:
    recipe = recipe_for("adamw", "watch.validate_every=2")
    accident = Accident("bad row", 1, 5)
    ran: list[Ran] = all_well(run_ranks(2, run, data, tmp_path / "run", recipe, accident))
    assert (ran[1].error, ran[1].is_told) == ("DataError: rank 1: a row is damaged.", False)
    assert ran[0].is_told
    ran = all_well(run_ranks(2, run, data, tmp_path / "run", recipe))
    assert f"resuming after step 4 of {STEPS}" in ran[0].said
    assert ran[0].steps == STEPS


def test_where_a_rank_is_killed_another_says_so_and_the_last_checkpoint_is_whole(
    data: Path, tmp_path: Path
) -> None:
    recipe = recipe_for("adamw", "watch.validate_every=2", "machine.parallel=fsdp")
    accident = Accident("death", 0, 5)
    dead, *others = run_ranks(4, run, data, tmp_path / "run", recipe, accident)
    assert isinstance(dead, Killed)
    lost = r"lost the others: one of them ended .* or what connects them failed: \S"
    assert all(re.search(lost, one.error) for one in others)
    assert sorted(one.is_told for one in others) == [False, True, True]
    ran: list[Ran] = all_well(run_ranks(1, run, data, tmp_path / "run", recipe))
    # The save of step 4 may have been under way.
    assert any(f"resuming after step {step} of {STEPS}" in ran[0].said for step in (2, 4))


def test_what_all_ranks_find_is_told_by_the_first(data: Path, tmp_path: Path) -> None:
    recipe = recipe_for("adamw", "optimizer.learning_rate=1e38")
    ran: list[Ran] = all_well(run_ranks(2, run, data, tmp_path / "run", recipe))
    assert ran[0].error == ran[1].error
    assert "weights or optimizer hold infinities or NaN" in ran[0].error
    assert [one.is_told for one in ran] == [False, True]


def test_ranks_that_cannot_share_a_step_are_refused_with_those_that_can(
    data: Path, tmp_path: Path
) -> None:
    ran: list[Ran] = all_well(run_ranks(3, run, data, tmp_path / "run", recipe_for("adamw")))
    assert "4 × 2 = 8 rows" in ran[0].error
    assert "3 ranks cannot share" in ran[0].error
    assert [one.is_told for one in ran] == [False, True, True]
    assert not (tmp_path / "run").exists()
    with pytest.raises(TrainingError) as error:
        share_rows(recipe_for("adamw").batch, World(0, 3))
    assert error.value.hint == "Start 2 or 4 ranks, or begin a run with steps of 9 rows."
    with pytest.raises(TrainingError) as error:
        share_rows(recipe_for("adamw").batch, World(0, 16))
    assert error.value.hint == "Start 8 ranks, or begin a run with steps of 16 rows."

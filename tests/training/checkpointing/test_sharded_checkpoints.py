"""Checkpoints of several ranks: read by any number of them, whole or not there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from llamita.files import read_json
from llamita.formats.huggingface import read_model_directory
from tests.training.ranks.processes import Killed, all_well, run_ranks
from tests.training.ranks.rank_jobs import (
    Seen,
    die_while_saving,
    load_and_step,
    save_after_a_step,
    save_three_ways,
)
from tests.training.runs import are_same


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Seen]]:
    """A checkpoint of four ranks, with the state of both optimizers, and what they had then."""
    folder = tmp_path_factory.mktemp("saved")
    return folder, all_well(run_ranks(4, save_after_a_step, folder))


@pytest.mark.parametrize("ranks", [4, 2, 1])
def test_any_number_of_ranks_loads_what_four_saved(
    saved: tuple[Path, list[Seen]], ranks: int
) -> None:
    folder, before = saved
    after = all_well(run_ranks(ranks, load_and_step, folder))
    for one in after:
        assert are_same(one.state, before[0].state)
        for name, values in before[0].later.items():
            torch.testing.assert_close(one.later[name], values, rtol=1e-4, atol=1e-6)
    drawn = [one.drawn.tolist() for one in after]
    if ranks == 4:
        assert drawn == [one.drawn.tolist() for one in before]
        assert all(are_same(a.later, b.later) for a, b in zip(after, before, strict=True))
        assert not any(one.said for one in after)
    else:
        assert len({*map(tuple, drawn)}) == ranks
        assert after[0].said == [f"step-0000001 is of 4 ranks, now {ranks}: dropout draws anew"]


def test_each_rank_writes_one_file_and_the_marker_lists_them(
    saved: tuple[Path, list[Seen]],
) -> None:
    folder = saved[0] / "step-0000001"
    files = [".metadata", *(f"__{rank}_0.distcp" for rank in range(4))]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*files, "complete.json"])
    content = read_json(folder / "complete.json")
    assert content["ranks"] == 4
    assert sorted(content["files"]) == files


def test_one_that_a_rank_finds_torn_is_skipped_by_all(
    saved: tuple[Path, list[Seen]], tmp_path: Path
) -> None:
    for name in ("step-0000001", "step-0000002"):
        shutil.copytree(saved[0] / "step-0000001", tmp_path / name)
    last = tmp_path / "step-0000002" / "__1_0.distcp"
    last.write_bytes(last.read_bytes()[:-1] + b"?")
    skipped = "skipping step-0000002: the content of its file __1_0.distcp has changed"
    assert [one.said[0] for one in all_well(run_ranks(2, load_and_step, tmp_path))] == [skipped] * 2


def test_what_one_rank_cannot_write_is_an_error_of_all(data: Path, tmp_path: Path) -> None:
    of_first, of_other = all_well(run_ranks(2, save_three_ways, tmp_path, data))
    assert of_other == [(text, True) for text, _ in of_first]
    (text, is_told), (of_model, _) = of_first
    assert not is_told
    assert text.startswith(
        "DiskError: rank 1: cannot write the checkpoint of step 2: File too large; the disk of "
    )
    assert of_model.startswith("DiskError: cannot write the model ")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-0000001"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "latest"]
    read_model_directory(tmp_path / "latest")


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_killed_while_saving_leaves_the_older_checkpoint_whole(
    tmp_path: Path, victim: int
) -> None:
    outcomes = run_ranks(2, die_while_saving, tmp_path, victim)
    assert isinstance(outcomes[victim], Killed)
    assert "lost the others" in str(outcomes[1 - victim])
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-0000001"]
    assert all_well(run_ranks(1, load_and_step, tmp_path))[0].said == [
        "step-0000001 is of 2 ranks, now 1: dropout draws anew"
    ]

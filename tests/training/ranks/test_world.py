"""The processes of a run: how they meet, what they tell each other, whose mistake it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch

from llamita.errors import TrainingError
from llamita.training.ranks import world as world_module
from llamita.training.ranks.world import World
from tests.training.ranks.parallel_jobs import fail, meet
from tests.training.ranks.processes import all_well, run_ranks


def test_what_ranks_tell_each_other_arrives() -> None:
    expected: list[Any] = [[0.1 + 0.2 + 0.30000000000000004, 3.0], [True, False], "of 0", [0, 1, 4]]
    assert all_well(run_ranks(3, meet)) == [[*expected, rank == 0] for rank in range(3)]


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        (["well", "mistake"], "DataError: rank 1: mistake of 1"),
        (["mistake", "mistake"], "DataError: mistake of 0"),
    ],
)
def test_a_mistake_on_one_rank_is_one_of_all_and_told_once(kinds: list[str], text: str) -> None:
    told = all_well(run_ranks(2, fail, kinds))
    assert told == [(text, False, "Mend it."), (text, True, "Mend it.")]


def test_a_fault_of_one_rank_stays_its_own_and_stops_the_others() -> None:
    told = all_well(run_ranks(2, fail, ["well", "fault"]))
    assert told[0][0] == "TrainingError: rank 1: ZeroDivisionError: a fault"
    assert told[1][0] == "fault: a fault"


def test_where_nobody_is_met_a_process_of_each_machine_says_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(world_module, "_MEETING", timedelta(seconds=0.2))
    environment = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for rank in (2, 3):
        for name, value in {**environment, "RANK": rank, "LOCAL_RANK": rank - 2}.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(
            TrainingError, match=rf"rank {rank} did not meet .* 127\.0\.0\.1:1: "
        ) as e:
            World.join().__enter__()
        assert e.value.is_told == (rank == 3)


def test_each_process_needs_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    World(1, 4, 1, 4).check_device("cuda")
    World(2, 4, 2, 4).check_device("cpu")
    World().check_device("mps")
    with pytest.raises(TrainingError, match="process 3 of this machine has no GPU") as error:
        World(2, 4, 2, 4).check_device("cuda")
    assert error.value.hint == "Start as many processes as GPUs: torchrun --nproc-per-node 2"
    with pytest.raises(TrainingError, match="4 processes cannot share an Apple GPU"):
        World(2, 4, 2, 4).check_device("mps")

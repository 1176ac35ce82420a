"""The same sums every time, and what cannot be is named."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import torch

from llamita.training import deciding, run
from llamita.training.machine.determinism import (
    arithmetic,
    arithmetic_changes,
    deterministic_algorithms,
    seed_rank,
)
from tests.training.recipes import small_recipe


def test_pytorch_is_deterministic_inside_and_as_before_outside() -> None:
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic_algorithms(True, print):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.empty(100_000).isnan().all()  # memory of before may hold some
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic_algorithms(False, print):
        assert not torch.are_deterministic_algorithms_enabled()


def test_an_error_inside_leaves_pytorch_as_it_was() -> None:
    with pytest.raises(KeyError), deterministic_algorithms(True, print):
        raise KeyError
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_operation_that_has_no_deterministic_kernel_is_named_once() -> None:
    said: list[str] = []
    with deterministic_algorithms(True, said.append), warnings.catch_warnings():
        warnings.simplefilter("always")
        for _ in range(2):
            warnings.warn(
                "cumsum_cuda_kernel does not have a deterministic implementation, but you set",
                stacklevel=1,
            )
    assert said == [
        "cumsum_cuda_kernel has no deterministic kernel here: runs may differ in the last bit"
    ]


def test_other_warnings_go_where_they_went() -> None:
    said: list[str] = []
    with pytest.warns(UserWarning, match="look out"), deterministic_algorithms(True, said.append):
        warnings.warn("look out", stacklevel=1)
    assert not said


def test_every_rank_has_a_random_stream_of_its_own_and_the_first_the_runs() -> None:
    drawn = []
    for rank in range(4):
        seed_rank(7, rank)
        drawn.append(torch.rand(3).tolist())
    torch.manual_seed(7)
    assert drawn[0] == torch.rand(3).tolist()
    assert len({*map(tuple, drawn)}) == 4
    seed_rank(7, 3)
    assert drawn[3] == torch.rand(3).tolist()


def test_changes_of_the_machine_are_in_words() -> None:
    now = arithmetic(is_compiled=True)
    assert arithmetic_changes(now, now) == []
    assert arithmetic_changes({}, now) == []
    other = {**now, "torch": "1.0"}
    assert arithmetic_changes(other, now) == [f"torch was 1.0 and is {now['torch']}"]
    plain = arithmetic(is_compiled=False)
    assert arithmetic_changes(plain, now) == ["compilation was off and is on"]
    ddp, fsdp = (arithmetic(is_compiled=True, ranks=2, parallel=kind) for kind in ("ddp", "fsdp"))
    assert arithmetic_changes(ddp, fsdp) == ["parallel was ddp and is fsdp"]
    assert arithmetic_changes(ddp, now) == ["ranks was 2 and is 1"]


def test_the_workspace_is_fixed_before_anything_is_timed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def timed(wanted: str, device: torch.device) -> tuple[str, str]:
        seen.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG"))
        return "float32", "as asked"

    monkeypatch.setattr(deciding, "choose_precision", timed)
    for deterministic, expected in ((False, None), (True, ":4096:8")):
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
        recipe = small_recipe(f"machine.deterministic={str(deterministic).lower()}", steps=1)
        run.train(data, tmp_path / str(deterministic), recipe)
        assert seen.pop() == expected

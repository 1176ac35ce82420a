"""Checkpoints: whole or not there, newest whole one first."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from torch.optim import Optimizer as TorchOptimizer

from llamita.config import preset
from llamita.errors import TrainingError
from llamita.model import Transformer
from llamita.training.checkpointing import checkpoints
from llamita.training.checkpointing.checkpoints import (
    load_newest_checkpoint,
    remove_old_checkpoints,
    take_snapshot,
    write_checkpoint,
)
from llamita.training.settings.recipe import Optimizer
from llamita.training.steps.optimizers import build_optimizers


def _state(seed: int, name: str = "adamw") -> tuple[Transformer, list[TorchOptimizer]]:
    model = Transformer(preset("tiny", 60)).initialize(seed)
    optimizer = Optimizer(name=name)  # type: ignore[arg-type]
    return model, build_optimizers(model, optimizer, "float32")


def _step(model: Transformer, optimizers: list[TorchOptimizer]) -> None:
    model(torch.arange(12)[None]).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def _save(
    folder: Path, step: int, seed: int = 0, keep: int = 9, keep_every: int | None = None
) -> Transformer:
    model, optimizers = _state(seed)
    _step(model, optimizers)
    snapshot = take_snapshot(step, model, optimizers, {"step": step})
    remove_old_checkpoints(write_checkpoint(folder, snapshot), keep, keep_every)
    return model


def _steps(folder: Path) -> list[int]:
    """The steps of the checkpoints in a folder that holds nothing else."""
    return sorted(int(path.name.removeprefix("step-")) for path in folder.iterdir())


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_restored_state_takes_the_same_next_step(tmp_path: Path, name: str) -> None:
    model, optimizers = _state(0, name)
    _step(model, optimizers)
    write_checkpoint(tmp_path, take_snapshot(1, model, optimizers, {"step": 1}))
    restored, restored_optimizers = _state(1, name)
    progress = load_newest_checkpoint(tmp_path, restored, restored_optimizers, print)
    assert progress == {"step": 1}
    for state in ((model, optimizers), (restored, restored_optimizers)):
        _step(*state)
    for a, b in zip(model.parameters(), restored.parameters(), strict=True):
        assert torch.equal(a, b)
    assert restored.lm_head.weight is restored.model.embed_tokens.weight


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_to_save_before_the_first_step_does_not_change_it(tmp_path: Path, name: str) -> None:
    saved, untouched, restored = (_state(0, name) for _ in range(3))
    write_checkpoint(tmp_path, take_snapshot(0, *saved, {"step": 0}))
    load_newest_checkpoint(tmp_path, *restored, print)
    for _ in range(2):
        for state in (saved, untouched, restored):
            _step(*state)
        for others in (saved, restored):
            for a, b in zip(untouched[0].parameters(), others[0].parameters(), strict=True):
                assert torch.equal(a, b)


def test_the_random_state_is_restored(tmp_path: Path) -> None:
    torch.manual_seed(5)
    _save(tmp_path, 1)
    expected = torch.rand(3)
    load_newest_checkpoint(tmp_path, *_state(1), print)
    assert torch.equal(torch.rand(3), expected)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        _save(tmp_path, step, keep=2)
    assert _steps(tmp_path) == [2, 10]


def test_milestones_are_kept_for_good(tmp_path: Path) -> None:
    for step in (1, 3, 4, 5, 6, 7, 8):
        _save(tmp_path, step, keep=1, keep_every=3)
    assert _steps(tmp_path) == [3, 6, 8]


def test_a_torn_milestone_of_a_later_step_goes(tmp_path: Path) -> None:
    _save(tmp_path, 6, keep_every=3)
    _flip(tmp_path / "step-0000006")
    _save(tmp_path, 4, keep_every=3)
    assert _steps(tmp_path) == [4]


def test_a_snapshot_is_not_moved_by_later_steps(tmp_path: Path) -> None:
    model, optimizers = _state(0)
    _step(model, optimizers)
    progress = {"step": 1, "loader": {"position": 4}}
    snapshot = take_snapshot(1, model, optimizers, progress)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random_state = torch.get_rng_state()
    _step(model, optimizers)
    progress["loader"] = {"position": 8}
    torch.rand(3)
    write_checkpoint(tmp_path, snapshot)
    model, optimizers = _state(1)
    assert load_newest_checkpoint(tmp_path, model, optimizers, print) == {
        "step": 1,
        "loader": {"position": 4},
    }
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(random_state, torch.get_rng_state())
    assert optimizers[0].state_dict()["state"][0]["step"] == 1


def _truncate(folder: Path) -> None:
    path = folder / "__0_0.distcp"
    path.write_bytes(path.read_bytes()[:-100])


def _flip(folder: Path) -> None:
    path = folder / "__0_0.distcp"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _unfinish(folder: Path) -> None:
    (folder / "complete.json").unlink()


def _lose(folder: Path) -> None:
    (folder / ".metadata").unlink()


def _garble(folder: Path) -> None:
    (folder / "complete.json").write_text("[]")


def _empty(folder: Path) -> None:
    (folder / "__0_0.distcp").write_bytes(b"")


def _flip_metadata(folder: Path) -> None:
    path = folder / ".metadata"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(bytes(data))


def _swap(folder: Path) -> None:
    (folder / "__0_0.distcp").unlink()
    (folder / "__0_0.distcp").mkdir()


def _cut_list(folder: Path) -> None:
    path = folder / "complete.json"
    path.write_bytes(path.read_bytes()[:-30])


def _list_nothing(folder: Path) -> None:
    (folder / "complete.json").write_text('{"step": 2, "progress": {"step": 2}, "files": {}}')


def _list_strangely(folder: Path) -> None:
    (folder / "complete.json").write_text('{"step": 2, "progress": {"step": 2}, "files": [1]}')


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


DAMAGES = [
    _truncate, _flip, _unfinish, _lose, _garble, _empty, _flip_metadata, _swap, _cut_list,
    _list_nothing, _list_strangely, _clear,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_torn_checkpoint_is_skipped_and_named(tmp_path: Path, damage: object) -> None:
    good = _save(tmp_path, 1)
    _save(tmp_path, 2, seed=3)
    damage(tmp_path / "step-0000002")  # type: ignore[operator]
    said: list[str] = []
    model, optimizers = _state(7)
    assert load_newest_checkpoint(tmp_path, model, optimizers, said.append) == {"step": 1}
    assert len(said) == 1
    assert "step-0000002" in said[0]
    for a, b in zip(model.parameters(), good.parameters(), strict=True):
        assert torch.equal(a, b)


def test_saving_after_a_torn_one_keeps_what_is_whole(tmp_path: Path) -> None:
    _save(tmp_path, 5)
    _save(tmp_path, 10)
    _flip(tmp_path / "step-0000010")
    _save(tmp_path, 7, keep=1)
    assert _steps(tmp_path) == [7]
    assert load_newest_checkpoint(tmp_path, *_state(1), print) == {"step": 7}


def test_when_none_is_whole_nothing_starts_anew_in_silence(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    _flip(tmp_path / "step-0000001")
    with pytest.raises(TrainingError, match="none of the 1"):
        load_newest_checkpoint(tmp_path, *_state(1), print)


def test_a_disk_that_fills_up_leaves_the_older_checkpoint_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _save(tmp_path, 1)

    def no_space(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_json", no_space)
    with pytest.raises(TrainingError, match=r"step 2: No space left on device; .* MB free"):
        _save(tmp_path, 2, keep=1)
    assert _steps(tmp_path) == [1]
    assert load_newest_checkpoint(tmp_path, *_state(1), print) == {"step": 1}


def test_no_checkpoints_is_no_error(tmp_path: Path) -> None:
    assert load_newest_checkpoint(tmp_path / "none", *_state(1), print) is None


def test_a_full_disk_in_pytorchs_writer_names_the_room_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _save(tmp_path, 1)

    def no_space(*args: object, **kwargs: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")

    monkeypatch.setattr(checkpoints, "save", no_space)
    with pytest.raises(TrainingError, match="MB free"):
        _save(tmp_path, 2)
    assert _steps(tmp_path) == [1]


def test_a_whole_checkpoint_of_something_else_is_named(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    model, optimizers = _state(0, "muon")
    with pytest.raises(TrainingError, match="step-0000001 is whole, but not of this model"):
        load_newest_checkpoint(tmp_path, model, optimizers, print)

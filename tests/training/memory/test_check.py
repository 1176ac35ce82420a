"""A run that would not fit is refused before its first step, with what would fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.config import preset
from llamita.errors import TrainingError
from llamita.training import run as run_module
from llamita.training.memory import check as memory_check
from llamita.training.memory import room
from llamita.training.memory.accounting import MemoryEstimate, estimate_disk, estimate_memory
from llamita.training.memory.check import check_fits
from llamita.training.memory.fitting import Setting, SettingSearch
from llamita.training.memory.room import Machine, Room
from llamita.training.run import train
from llamita.training.settings.recipe import Length, Recipe
from llamita.training.settings.recipe_file import build_recipe
from tests.training.recipes import small_recipe

CONFIG = preset("small", 8192)
LARGE = (
    "batch.sequences=64",
    "batch.context_length=256",
    "machine.device=cpu",
    "machine.precision=float32",
    "machine.compile=off",
)


def _recipe(*assignments: str) -> Recipe:
    return build_recipe(None, [*LARGE, *assignments], {})


def _machine(monkeypatch: pytest.MonkeyPatch, ram: float, gpu: float | None = None) -> None:
    monkeypatch.setattr(room, "resident_memory", lambda: 0)
    monkeypatch.setattr(
        room, "free_memory", lambda: Room(int(ram * 1e9), "free in this machine's memory")
    )
    if gpu is not None:
        on_gpu = Room(int(gpu * 1e9), "free on the Test GPU")
        monkeypatch.setattr(room, "free_cuda_memory", lambda: on_gpu)


def _refused(run: Path, recipe: Recipe, **more: object) -> TrainingError:
    with pytest.raises(TrainingError) as caught:
        check_fits(run, recipe, CONFIG, **more)  # type: ignore[arg-type]
    return caught.value


def test_what_fits_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, 100)
    said: list[str] = []
    check_fits(tmp_path, _recipe(), CONFIG, report=said.append)
    [line] = said
    assert re.search(r"takes about \d\.\d GB of memory \(100\.0 GB free", line)


def test_the_refusal_has_the_sum_and_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _machine(monkeypatch, 2)
    error = _refused(tmp_path, _recipe())
    memory = estimate_memory(_recipe(), CONFIG)
    assert f"needs {memory.in_ram / 1e9:.1f} GB of memory, where 2.0 GB are free" in error.message
    figures = re.findall(r"([\d.]+) (GB|MB)", error.message.split(": ", 1)[1])
    total = sum(float(value) * (1e9 if unit == "GB" else 1e6) for value, unit in figures)
    assert total == pytest.approx(memory.in_ram, abs=3e8)
    assert error.hint is not None
    assert "--set batch.sequences=16 --set batch.accumulation=4" in error.hint
    assert "the same batches" in error.hint
    assert "machine.check_memory=false" in error.hint


@given(
    room=st.floats(0.5, 6),
    sequences=st.sampled_from([1, 7, 16, 64, 96]),
    accumulation=st.integers(1, 3),
    ranks=st.sampled_from([1, 2, 4]),
)
def test_the_setting_named_fits_and_keeps_the_tokens_of_a_step(
    room: float, sequences: int, accumulation: int, ranks: int
) -> None:
    recipe = _recipe(f"batch.sequences={sequences}", f"batch.accumulation={accumulation}")

    def fits(memory: MemoryEstimate) -> bool:
        return memory.in_ram <= room * 1e9

    setting = SettingSearch(recipe, CONFIG, fits, ranks=ranks).nearest()
    if setting is None:
        return
    assert fits(setting.memory)
    changes = [text.removeprefix("--set ") for text in setting.changes if "--set" in text]
    config = CONFIG
    if setting.changes[0].startswith("--params"):
        model = [f"model.params={setting.changes[0].split()[1]}"]
        config = build_recipe(None, [*LARGE, *model], {}).model_shape(8192)
    changed = _recipe(
        f"batch.sequences={sequences}", f"batch.accumulation={accumulation}", *changes
    )
    assert changed.tokens_per_step == recipe.tokens_per_step
    parallel = "fsdp" if "machine.parallel=fsdp" in changes else "ddp"
    memory = estimate_memory(changed, config, ranks=ranks, parallel=parallel)  # type: ignore[arg-type]
    assert memory.in_ram == pytest.approx(setting.memory.in_ram, rel=0.05)


def _nearest(room: int) -> str:
    setting = SettingSearch(_recipe(), CONFIG, lambda memory: memory.in_ram <= room).nearest()
    return "" if setting is None else setting.changes[0]


def test_smaller_micro_batches_come_before_a_smaller_model() -> None:
    for size in (32, 16, 1):
        parts = (f"batch.sequences={size}", f"batch.accumulation={64 // size}")
        room = estimate_memory(_recipe(*parts), CONFIG).in_ram
        assert _nearest(room) == f"--set batch.sequences={size}"
    assert _nearest(room * 2 // 3).startswith("--params")


def test_checkpointing_is_named_where_one_row_is_too_much() -> None:
    recipe = _recipe("batch.sequences=1", "batch.context_length=16384")
    kept = estimate_memory(recipe, CONFIG).in_ram
    setting = SettingSearch(recipe, CONFIG, lambda memory: memory.in_ram < 0.8 * kept).nearest()
    assert setting is not None
    assert setting.changes == ("--set machine.activation_checkpointing=true",)


def test_a_gpu_that_is_too_small_is_told_with_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _machine(monkeypatch, 400, gpu=60)
    config = preset("llama-3-8b", 128256)
    recipe = _recipe(
        "machine.device=cuda",
        "machine.precision=bfloat16",
        "machine.compile=on",
        "batch.sequences=8",
    )
    with pytest.raises(TrainingError) as caught:
        check_fits(tmp_path, recipe, config)
    assert "on the GPU, where 60.0 GB are free on the Test GPU" in caught.value.message
    assert "CUDA" in caught.value.message
    assert "the program" not in caught.value.message
    here, there = str(caught.value.hint).split(", or ")
    assert "a smaller model" in here
    assert "--params" in here
    assert "the same batches" in there
    assert "torchrun over 2 GPUs --set machine.parallel=fsdp" in there


def _changes(
    find: Callable[[SettingSearch], Setting | None], gigabytes: int, **more: Any
) -> tuple[str, ...] | None:
    """What is found for Llama 3 8B in bfloat16 on GPUs of a size."""
    recipe = build_recipe(
        None, ["machine.device=cuda", "machine.precision=bfloat16", "batch.sequences=64"], {}
    )
    search = SettingSearch(
        recipe,
        preset("llama-3-8b", 128256),
        lambda memory: memory.on_device < gigabytes * 1e9,
        **more,
    )
    setting = find(search)
    return None if setting is None else setting.changes


def test_gpus_are_not_asked_for_where_those_there_are_do() -> None:
    assert _changes(SettingSearch.with_more_gpus, 150) is None
    more = _changes(SettingSearch.with_more_gpus, 75)
    assert more is not None
    assert more[:2] == ("torchrun over 2 GPUs", "--set machine.parallel=fsdp")


def test_a_run_that_has_begun_may_be_sharded_or_have_more_gpus() -> None:
    """Under ddp on eight GPUs of 80 GB; then on such small ones that more of them are needed."""
    begun = {"ranks": 8, "has_begun": True}
    sharded, recomputed = (
        "--set machine.parallel=fsdp",
        "--set machine.activation_checkpointing=true",
    )
    assert _changes(SettingSearch.nearest, 80, **begun) == (sharded,)
    assert _changes(SettingSearch.with_more_gpus, 80, **begun) is None
    assert _changes(SettingSearch.nearest, 28, **begun) is None
    assert _changes(SettingSearch.with_more_gpus, 28, **begun) == (
        "torchrun over 16 GPUs",
        sharded,
        recomputed,
    )


def test_ranks_of_one_machine_share_its_memory() -> None:
    recipe = _recipe()
    memory = estimate_memory(recipe, CONFIG, ranks=4)
    room = Room(int(1.5 * memory.in_ram), "free")
    assert Machine(room, None, processes=1).fits(memory)
    assert not Machine(room, None, processes=4).fits(memory)


def test_what_all_ranks_of_the_machine_take_is_set_beside_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _machine(monkeypatch, 100)
    monkeypatch.setattr(room, "resident_memory", lambda: 10**9)
    said: list[str] = []
    check_fits(tmp_path, _recipe(), CONFIG, ranks=4, local_ranks=4, report=said.append)
    assert re.search(r"takes about 4 times \d\.\d GB of memory \(104\.0 GB free", said[0])


def test_what_the_process_holds_already_is_not_needed_again() -> None:
    memory = estimate_memory(_recipe(), CONFIG)
    room = Room(memory.in_ram - 10**8, "free")
    assert not Machine(room, None).fits(memory)
    assert Machine(room, None, resident=10**8).fits(memory)


def test_where_nothing_is_known_nothing_is_refused() -> None:
    assert Machine(None, None).fits(estimate_memory(_recipe("batch.sequences=100000"), CONFIG))


def test_a_full_disk_is_told_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _machine(monkeypatch, 100)
    disk = estimate_disk(_recipe(), CONFIG)
    monkeypatch.setattr(
        memory_check, "free_disk", lambda run: Room(disk.total - 1, "free on the disk of here")
    )
    error = _refused(tmp_path, _recipe())
    assert "3 checkpoints of" in error.message
    assert "models" in error.message
    assert "--set checkpoints.keep=1" in str(error.hint)
    check_fits(tmp_path, _recipe(), CONFIG, looks_at_disk=False)
    (tmp_path / "old").write_bytes(bytes(10))
    check_fits(tmp_path, _recipe(), CONFIG)


def test_milestones_of_a_run_in_minutes_are_looked_at_when_its_steps_are_known(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_check, "free_disk", lambda run: Room(10**8, "free on the disk"))
    monkeypatch.setattr(run_module, "steps_that_fit", lambda *arguments: 10**6)
    recipe = small_recipe("checkpoints.keep_every=1")
    recipe = recipe.model_copy(update={"length": Length(minutes=1)})
    with pytest.raises(TrainingError, match="of disk"):
        train(data, tmp_path / "run", recipe)
    assert not (tmp_path / "run").exists()


def test_a_run_that_does_not_fit_is_not_begun(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _machine(monkeypatch, 0.1)
    with pytest.raises(TrainingError, match="of memory"):
        train(data, tmp_path / "run", small_recipe())
    assert not (tmp_path / "run").exists()
    train(data, tmp_path / "run", small_recipe("machine.check_memory=false", steps=2))
    assert (tmp_path / "run" / "latest").is_dir()


def test_a_run_that_has_begun_goes_on_with_checkpointing_or_unchecked(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    train(data, run, small_recipe(steps=2))
    _machine(monkeypatch, 0.1)
    with pytest.raises(TrainingError, match="of memory"):
        train(data, run)
    changed = small_recipe(
        "machine.check_memory=false", "machine.activation_checkpointing=true", steps=2
    )
    assert train(data, run, changed).was_finished

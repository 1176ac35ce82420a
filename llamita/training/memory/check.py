"""Before step 0: a run that would not fit is refused, with the arithmetic and what would fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from llamita.config import ModelConfig
from llamita.errors import TrainingError
from llamita.training.machine.disk import DiskError
from llamita.training.memory.accounting import (
    DiskEstimate,
    MemoryEstimate,
    Parallel,
    estimate_disk,
    estimate_memory,
)
from llamita.training.memory.fitting import Setting, SettingSearch
from llamita.training.memory.room import Machine, folder_bytes, free_disk, gigabytes
from llamita.training.settings.recipe import Recipe

_NAMES = {
    "parameters": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activations",
    "logits": "logits",
    "working": "working buffers",
    "snapshot": "the copy that a save writes",
    "data": "batches",
    "program": "the program",
    "fragments": "gaps between blocks",
    "context": "CUDA",
}
_IN_RAM_ALWAYS = ("snapshot", "data", "program")
_SWITCH = "--set machine.check_memory=false"


class _Shared(TypedDict):
    """What `estimate_memory` is told of a run beside its recipe and shape."""

    ranks: int
    parallel: Parallel
    teacher: ModelConfig | None
    train_tokens: int


def check_fits(
    run: Path,
    recipe: Recipe,
    config: ModelConfig,
    *,
    ranks: int = 1,
    local_ranks: int = 1,
    parallel: Parallel = "ddp",
    teacher: ModelConfig | None = None,
    train_tokens: int = 0,
    has_begun: bool = False,
    looks_at_disk: bool = True,
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Refuse a run that would not fit the memory or the disk of this machine.

    Args:
        recipe: its machine decided.
        ranks, parallel, teacher, train_tokens: as of `estimate_memory`.
        local_ranks: those of this machine, which share its main memory.
        has_begun: the run's settings are fixed already.
        looks_at_disk: of several ranks, which have one folder, one does.
        report: takes the line that says what the run takes.

    Raises:
        TrainingError: with what it takes, what there is, and the nearest setting that fits.
    """
    if not recipe.machine.check_memory:
        return
    shared: _Shared = {
        "ranks": ranks,
        "parallel": parallel,
        "teacher": teacher,
        "train_tokens": train_tokens,
    }
    memory = estimate_memory(recipe, config, **shared)
    machine = Machine.here(recipe.machine.device, local_ranks)
    if not machine.fits(memory):
        search = SettingSearch(recipe, config, machine.fits, has_begun=has_begun, **shared)
        settings = [search.nearest(), search.with_more_gpus()]
        raise TrainingError(_too_much(memory, machine), hint=_hint(settings, machine))
    if looks_at_disk:
        check_disk(run, recipe, config)
    report(_summary(memory, estimate_disk(recipe, config), machine))


def check_disk(run: Path, recipe: Recipe, config: ModelConfig) -> None:
    """Refuse a run that would not fit the disk.

    Of one whose length is in minutes, milestones are counted when they have become steps.

    Raises:
        TrainingError: with what it takes, what there is, and what would fit.
    """
    if recipe.machine.check_memory:
        _check_disk(run, estimate_disk(recipe, config), recipe)


def _hint(settings: list[Setting | None], machine: Machine) -> str:
    fitting = [
        f"({setting.keeps}, {gigabytes(machine.needed(setting.memory))}): {setting.text}"
        for setting in settings
        if setting is not None
    ]
    if not fitting:
        return f"Free some, take a larger machine, or try it all the same: {_SWITCH}"
    return f"This fits {', or '.join(fitting)}. Or try it all the same: {_SWITCH}"


def _as_sum(memory: MemoryEstimate, names: tuple[str, ...] | None = None) -> str:
    """The parts of an estimate as a sum, largest first."""
    parts = {
        name: size
        for name, size in memory.parts.items()
        if size >= 5e5 and (names is None or name in names)
    }
    return " + ".join(f"{_NAMES[name]} {gigabytes(size)}" for name, size in parts.items())


def _too_much(memory: MemoryEstimate, machine: Machine) -> str:
    gpu = machine.gpu
    if gpu is not None and memory.on_device > gpu.bytes:
        names = tuple(name for name in _NAMES if name not in _IN_RAM_ALWAYS)
        return (
            f"the run needs {gigabytes(memory.on_device)} on the GPU, where "
            f"{gigabytes(gpu.bytes)} are {gpu.where}: {_as_sum(memory, names)}."
        )
    assert machine.ram is not None  # else it would have fitted
    names = _IN_RAM_ALWAYS if gpu is not None else tuple(_NAMES)
    there = machine.ram.bytes + machine.processes * machine.resident
    return (
        f"the run needs {_times(machine)}{gigabytes(memory.in_ram)} of memory, where "
        f"{gigabytes(there)} are {machine.ram.where}: {_as_sum(memory, names)}."
    )


def _times(machine: Machine) -> str:
    return f"{machine.processes} times " if machine.processes > 1 else ""


def _check_disk(run: Path, disk: DiskEstimate, recipe: Recipe) -> None:
    """What lies in the run's folder already is replaced by what is to come."""
    room = free_disk(run)
    free = room.bytes + folder_bytes(run)
    if disk.total <= free:
        return
    kept = round(disk.checkpoints / disk.checkpoint)
    hint = f"Make room, choose another folder with -o, or try it all the same: {_SWITCH}"
    least = 2 * disk.checkpoint + disk.models
    if least <= free:
        changes = []
        if recipe.checkpoints.keep > 1:
            changes.append("--set checkpoints.keep=1")
        if recipe.checkpoints.keep_every is not None:
            changes.append("no checkpoints.keep_every")
        hint = f"This fits ({gigabytes(least)}): {' and '.join(changes)}. {hint}"
    raise DiskError(
        f"the run needs {gigabytes(disk.total)} of disk, where {gigabytes(free)} are {room.where}: "
        f"{kept} checkpoints of {gigabytes(disk.checkpoint)} (one being written) + models "
        f"{gigabytes(disk.models)}.",
        hint=hint,
    )


def _summary(memory: MemoryEstimate, disk: DiskEstimate, machine: Machine) -> str:
    gpu, ram = machine.gpu, machine.ram
    text = f"takes about {_times(machine)}{gigabytes(memory.in_ram)} of memory"
    if ram is not None:
        there = ram.bytes + machine.processes * machine.resident
        text += f" ({gigabytes(there)} {ram.where})"
    if gpu is not None:
        text += f", {gigabytes(memory.on_device)} on the GPU ({gigabytes(gpu.bytes)} free)"
    return f"{text}, {gigabytes(disk.total)} of disk"

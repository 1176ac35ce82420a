"""Before step 0: a run that would not fit is refused, with the arithmetic and what would fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from llamita.config import ModelConfig
from llamita.errors import TrainingError
from llamita.training.accounting import (
    DiskEstimate,
    MemoryEstimate,
    Parallel,
    estimate_disk,
    estimate_memory,
)
from llamita.training.fitting import nearest_setting
from llamita.training.model_source import ModelSource
from llamita.training.recipe import Recipe
from llamita.training.room import (
    Room,
    folder_bytes,
    free_cuda_memory,
    free_disk,
    free_memory,
    resident_memory,
)

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


def check_fits(
    run: Path,
    recipe: Recipe,
    config: ModelConfig,
    *,
    ranks: int = 1,
    local_ranks: int = 1,
    parallel: Parallel = "ddp",
    has_begun: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Refuse a run that would not fit the memory or the disk of this machine.

    Args:
        recipe: its machine decided.
        ranks, parallel: as of `estimate_memory`.
        local_ranks: those of this machine, which share its main memory.
        has_begun: the run's settings are fixed already.
        report: takes the line that says what the run takes.

    Raises:
        TrainingError: with what it takes, what there is, and the nearest setting that fits.
    """
    if not recipe.machine.check_memory:
        return
    teacher = None
    if recipe.teacher is not None:
        teacher = ModelSource.open(recipe.teacher.model, "teacher").checkpoint.config
    memory = estimate_memory(recipe, config, ranks=ranks, parallel=parallel, teacher=teacher)
    disk = estimate_disk(recipe, config)
    machine = Machine.here(recipe.machine.device, local_ranks)
    if not machine.fits(memory):
        setting = nearest_setting(
            recipe,
            config,
            machine.fits,
            ranks=ranks,
            parallel=parallel,
            teacher=teacher,
            has_begun=has_begun,
        )
        hint = f"Free some, take a larger machine, or try it all the same: {_SWITCH}"
        if setting is not None:
            hint = (
                f"This fits ({setting.keeps}, {gigabytes(machine.needed(setting.memory))}): "
                f"{setting.text}. Or try it all the same: {_SWITCH}"
            )
        raise TrainingError(_too_much(memory, machine), hint=hint)
    _check_disk(run, disk, recipe)
    report(_summary(memory, disk, machine))


class Machine:
    """What of it a run may use. `processes` of the run's share its main memory."""

    def __init__(
        self, ram: Room | None, gpu: Room | None, processes: int = 1, resident: int = 0
    ) -> None:
        self.ram, self.gpu = ram, gpu
        self.processes, self.resident = processes, resident

    @classmethod
    def here(cls, device: str, processes: int) -> Machine:
        """This one, as it is now."""
        gpu = free_cuda_memory() if device == "cuda" else None
        return cls(free_memory(), gpu, processes, resident_memory())

    def needed(self, memory: MemoryEstimate) -> int:
        """Bytes of the room that is scarcer: the GPU's where it is too small, else main memory."""
        if self.gpu is not None and (memory.on_device > self.gpu.bytes or self.fits_ram(memory)):
            return memory.on_device
        return self.processes * memory.in_ram

    def fits_ram(self, memory: MemoryEstimate) -> bool:
        """Whether main memory holds it; what the processes hold already is part of it."""
        if self.ram is None:
            return True
        return self.processes * (memory.in_ram - self.resident) <= self.ram.bytes

    def fits(self, memory: MemoryEstimate) -> bool:
        """Whether the GPU's memory and main memory hold it."""
        on_gpu = self.gpu is None or memory.on_device <= self.gpu.bytes
        return on_gpu and self.fits_ram(memory)


def gigabytes(size: float) -> str:
    """Bytes for a person."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.0f} MB"


def arithmetic(memory: MemoryEstimate, names: tuple[str, ...] | None = None) -> str:
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
            f"{gigabytes(gpu.bytes)} are {gpu.where}: {arithmetic(memory, names)}."
        )
    assert machine.ram is not None  # else it would have fitted
    names = _IN_RAM_ALWAYS if gpu is not None else tuple(_NAMES)
    times = f"{machine.processes} times " if machine.processes > 1 else ""
    there = machine.ram.bytes + machine.processes * machine.resident
    return (
        f"the run needs {times}{gigabytes(memory.in_ram)} of memory, where {gigabytes(there)} are "
        f"{machine.ram.where}: {arithmetic(memory, names)}."
    )


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
    raise TrainingError(
        f"the run needs {gigabytes(disk.total)} of disk, where {gigabytes(free)} are {room.where}: "
        f"{kept} checkpoints of {gigabytes(disk.checkpoint)} (one being written) + models "
        f"{gigabytes(disk.models)}.",
        hint=hint,
    )


def _summary(memory: MemoryEstimate, disk: DiskEstimate, machine: Machine) -> str:
    gpu, ram = machine.gpu, machine.ram
    text = f"takes about {gigabytes(memory.in_ram)} of memory"
    if ram is not None:
        text += f" ({gigabytes(ram.bytes + machine.resident)} {ram.where})"
    if gpu is not None:
        text += f", {gigabytes(memory.on_device)} on the GPU ({gigabytes(gpu.bytes)} free)"
    return f"{text}, {gigabytes(disk.total)} of disk"

"""How much memory and disk a run may take here, without PyTorch but for GPUs.

On Linux what counts is the least of: what the kernel calls available, and what each control group
that this process is in (a container's, a SLURM job's) leaves of its limit. Pages of files that can
be given back count as free in both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llamita.training.memory.rank_memory import CUDA_CONTEXT, MemoryEstimate

_VM_STAT_FREE = ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")
# A limit of version 1 that is none: all pages that 63 bits can count.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Room:
    """Bytes that are free, and where that is known from."""

    bytes: int
    where: str


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


def free_memory(root: Path = Path("/")) -> Room | None:
    """What this process may still take of main memory; None where the system does not say.

    root: where `proc` and `sys` lie.
    """
    rooms = [*_of_the_kernel(root), *_of_control_groups(root)]
    if not rooms and root == Path("/"):
        rooms = list(_of_other_systems())
    return min(rooms, key=lambda room: room.bytes, default=None)


def free_cuda_memory() -> Room:
    """What this process may take of its GPU, what it has taken already included.

    That is what PyTorch has reserved, and CUDA's own part: whoever asks has it.
    """
    import torch

    free, total = torch.cuda.mem_get_info()
    name = torch.cuda.get_device_name()
    taken = torch.cuda.memory_reserved() + CUDA_CONTEXT
    return Room(min(total, free + taken), f"free on the {name}")


def free_disk(path: Path) -> Room:
    """What the file system of `path`, which need not exist yet, has left for this user."""
    place = next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())
    return Room(shutil.disk_usage(place).free, f"free on the disk of {place}")


def resident_memory(root: Path = Path("/")) -> int:
    """Bytes of main memory that this process holds now; 0 where the system does not say."""
    pages = _text(root / "proc/self/statm").split()
    if len(pages) > 1 and pages[1].isdecimal():
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def folder_bytes(folder: Path) -> int:
    """The size of all files below `folder`, one of two names once; 0 where there is none."""
    sizes = {}
    for path in folder.rglob("*"):
        try:
            found = path.lstat()
            sizes[found.st_dev, found.st_ino] = found.st_size if path.is_file() else 0
        except OSError:  # it went away meanwhile
            continue
    return sum(sizes.values())


def _of_the_kernel(root: Path) -> Iterator[Room]:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if name == "MemAvailable" and words and words[0].isdecimal():
            yield Room(int(words[0]) * 1024, "free in this machine's memory")


def _of_control_groups(root: Path) -> Iterator[Room]:
    """A group's limit holds for all groups within it, so each one up to the root is asked.

    In a container the path may be the host's, of which only the last folders are to be seen.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
            names = ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            mounts = [root / "sys/fs/cgroup/memory"]
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        own = Path(path.lstrip("/"))
        for mount in mounts:
            for folder in (mount / own, *(mount / parent for parent in own.parents)):
                room = _room_of_group(folder, *names)
                if room is not None:
                    yield room


def _room_of_group(folder: Path, limit: str, usage: str, prefix: str) -> Room | None:
    most, used = _text(folder / limit).strip(), _text(folder / usage).strip()
    if not most.isdecimal() or int(most) >= _NO_LIMIT:
        return None
    taken = int(used) if used.isdecimal() else 0
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in (f"{prefix}inactive_file", f"{prefix}active_file") and value.strip().isdecimal():
            taken -= min(taken, int(value))
    free = max(0, int(most) - taken)
    return Room(free, f"left of the {int(most) / 1e9:,.1f} GB that its control group may take")


def _of_other_systems() -> Iterator[Room]:
    where = "free in this machine's memory"
    if sys.platform == "darwin":
        free = _free_on_macos(_output("vm_stat"))
    elif sys.platform == "win32":
        free = _free_on_windows()
    else:
        free = _free_pages()
    if free:
        yield Room(free, where)


def _free_on_macos(text: str) -> int:
    """From what `vm_stat` prints: pages that are free, or can be freed without writing them."""
    size, pages = 4096, 0
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if "page size of" in line:
            size = int(next(word for word in line.split() if word.isdecimal()))
        elif name in _VM_STAT_FREE and value.strip(" .").isdecimal():
            pages += int(value.strip(" ."))
    return pages * size


def _free_on_windows() -> int:
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = (
            ("dwLength", ctypes.c_ulong),
            ("dwMemoryLoad", ctypes.c_ulong),
            ("ullTotalPhys", ctypes.c_ulonglong),
            ("ullAvailPhys", ctypes.c_ulonglong),
            ("ullTotalPageFile", ctypes.c_ulonglong),
            ("ullAvailPageFile", ctypes.c_ulonglong),
            ("ullTotalVirtual", ctypes.c_ulonglong),
            ("ullAvailVirtual", ctypes.c_ulonglong),
            ("ullAvailExtendedVirtual", ctypes.c_ulonglong),
        )

    status = Status(dwLength=ctypes.sizeof(Status))
    windll = getattr(ctypes, "windll", None)
    if windll is None or not windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return 0
    return int(status.ullAvailPhys)


def _free_pages() -> int:
    """What POSIX systems beside Linux and macOS say, if they do."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def _output(command: str) -> str:
    try:
        return subprocess.run([command], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""

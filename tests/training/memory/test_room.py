"""How much memory there is: the machine's, and what control groups leave of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from llamita.training.memory import room
from llamita.training.memory.rank_memory import CUDA_CONTEXT
from llamita.training.memory.room import (
    folder_bytes,
    free_cuda_memory,
    free_disk,
    free_memory,
    resident_memory,
)


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal:       24000000 kB\nMemFree:  100 kB\nMemAvailable:    8000000 kB\n"


def test_what_the_kernel_calls_available_is_free(tmp_path: Path) -> None:
    found = free_memory(_write(tmp_path, {"proc/meminfo": MEMINFO}))
    assert found is not None
    assert found.bytes == 8_000_000 * 1024
    assert "machine" in found.where


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("limited", ["own", "parent", "namespace"])
def test_the_limit_of_any_group_around_the_process_holds(
    tmp_path: Path, version: int, limited: str
) -> None:
    """`namespace`: the path is the host's, and the container sees its own group as the root."""
    mount = "sys/fs/cgroup" + ("/memory" if version == 1 else "")
    folder = {"own": f"{mount}/slurm/job", "parent": f"{mount}/slurm", "namespace": mount}[limited]
    names = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        if version == 1
        else ("memory.max", "memory.current", "")
    )
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "7:cpu:/x\n4:memory:/slurm/job\n"
        if version == 1
        else "0::/slurm/job\n",
        f"{folder}/{names[0]}": "3000000000\n",
        f"{folder}/{names[1]}": "1200000000\n",
        f"{folder}/memory.stat": (
            f"anon 5\n{names[2]}inactive_file 150000000\n{names[2]}active_file 50000000\n"
        ),
    }
    found = free_memory(_write(tmp_path, files))
    assert found is not None
    assert found.bytes == 2_000_000_000
    assert "3.0 GB" in found.where
    assert "control group" in found.where


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", "", "nonsense"])
def test_a_group_without_a_limit_takes_nothing_away(tmp_path: Path, limit: str) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "4:memory:/job\n0::/job\n",
        "sys/fs/cgroup/job/memory.max": limit,
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": limit,
    }
    found = free_memory(_write(tmp_path, files))
    assert found is not None
    assert found.bytes == 8_000_000 * 1024


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "1000",
        "sys/fs/cgroup/memory.current": "2000",
    }
    found = free_memory(_write(tmp_path, files))
    assert found is not None
    assert found.bytes == 0


def test_a_system_that_says_nothing_has_no_figure(tmp_path: Path) -> None:
    assert free_memory(tmp_path) is None
    assert resident_memory(tmp_path) == 0


def test_macos_counts_pages_that_can_be_had() -> None:
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                               1000.\n"
        "Pages active:                            90000.\n"
        "Pages inactive:                           2000.\n"
        "Pages speculative:                         300.\n"
        "Pages purgeable:                            10.\n"
    )
    assert room._free_on_macos(text) == 3310 * 16384


def test_other_systems_are_asked_where_there_is_no_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(room, "_output", lambda command: f"Pages free: {len(command)}.\n")
    assert [found.bytes for found in room._of_other_systems()] == [7 * 4096]
    monkeypatch.setattr(sys, "platform", "freebsd")
    assert all(found.bytes > 0 for found in room._of_other_systems())


def test_this_machine_says_something() -> None:
    found = free_memory()
    assert found is None or found.bytes > 1 << 20


def test_disk_is_that_of_the_nearest_folder_there_is(tmp_path: Path) -> None:
    found = free_disk(tmp_path / "not" / "there")
    assert found.bytes > 0
    assert str(tmp_path) in found.where
    _write(tmp_path, {"a/b": "12345", "c": "1"})
    (tmp_path / "d").hardlink_to(tmp_path / "c")
    assert folder_bytes(tmp_path) == 6
    assert folder_bytes(tmp_path / "none") == 0


def test_what_cuda_itself_has_taken_of_a_gpu_is_free_to_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Test GPU")
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 10**9)
    for free, expected in ((10 * 10**9, 11 * 10**9 + CUDA_CONTEXT), (80 * 10**9, 80 * 10**9)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (free, 80 * 10**9))
        assert free_cuda_memory().bytes == expected

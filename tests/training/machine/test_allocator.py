"""What is freed stays with the process, and is not cleared and mapped anew."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Fills 80 MB and frees them; the pages that are touched anew by filling 64 MB then.
_PROGRAM = """
import resource, sys, torch
from llamita.training.machine.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
def fill(megabytes):
    torch.full((megabytes << 18,), 1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = fill(80)
print(fill(64) - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_blocks_that_are_freed_are_used_again() -> None:
    kept, mapped = (_faults(way) for way in ("kept", "by default"))
    assert kept < 16 < mapped  # 16,384 pages of 4 kB, or 32 of 2 MB


def _faults(way: str) -> int:
    command = [sys.executable, "-c", _PROGRAM, way]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

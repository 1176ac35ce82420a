"""What the machine gives and what this process took of it: rates of reading memory and of matrix
products, peak memory.

Free of PyTorch on the CPU but for the products; an accelerator is asked through it.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

_LEAST_BYTES = 256 << 20
_MOST_BYTES = 2 << 30
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_STATUS = Path("/proc/self/status")
_PRODUCT_WIDTH = {"cpu": 1024, "cuda": 8192}  # of square matrices that keep every unit busy
_SLOW_WIDTH = 256  # where a processor only emulates the precision


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def physical_memory() -> int | None:
    """The machine's memory in bytes; None where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def read_bandwidth(
    threads: int, *, device: str = "cpu", repeats: int = 7, size: int | None = None
) -> float:
    """Bytes a second at which `threads` threads read memory in order: the median of `repeats`.

    size: bytes that are read; left out, several times the last cache, so that it holds none of
    them for the next round.
    """
    if not device.startswith("cpu"):
        return _device_bandwidth(device, repeats, size or 1 << 30)
    size = size or min(max(_LEAST_BYTES, 8 * _last_cache_bytes()), _MOST_BYTES)
    # The largest of bytes is found by whole vector registers: the loads alone take time.
    parts = np.array_split(np.ones(size, dtype=np.uint8), threads)
    with ThreadPoolExecutor(threads) as pool:
        seconds = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            list(pool.map(np.max, parts))
            seconds.append(time.perf_counter() - start)
    return size / median(seconds[1:])


@cache
def matrix_peak(precision: str, device: str = "cpu") -> float:
    """Operations a second of matrix products in `float32` or `bfloat16`, measured once a process.

    The best of several products of large square matrices, on as many threads as PyTorch uses.
    """
    import torch

    from llamita.model.precision import is_slow, product_seconds

    dtype = getattr(torch, precision)
    width = _PRODUCT_WIDTH.get(torch.device(device).type, 2048)
    if device == "cpu" and is_slow(dtype):
        width = _SLOW_WIDTH
    return float(2 * width**3 / product_seconds(dtype, torch.device(device), width, width))


def peak_memory(device: str = "cpu") -> int | None:
    """The most bytes that this process held at once; None where the system does not say.

    Of an accelerator: its own memory, as PyTorch has allotted it. Else resident memory, the pages
    of mapped files among it.
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device)
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return _resource_peak()


def _resource_peak() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in kilobytes


def _last_cache_bytes() -> int:
    """The largest cache of the first core; 0 where it is not told."""
    sizes = [0]
    for path in _CACHES.glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        number, unit = text.rstrip("KMG"), text[-1:]
        if number.isdigit():
            sizes.append(int(number) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(unit, 1))
    return max(sizes)


def _device_bandwidth(device: str, repeats: int, size: int) -> float:
    import torch

    data = torch.ones(size // 4, dtype=torch.float32, device=device)

    def read() -> Any:
        return data.sum().item()  # the number is waited for

    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - start)
    return size / median(seconds[1:])

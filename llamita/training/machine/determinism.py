"""The same sums in the same order every time: a resumed run equals one that never stopped.

What breaks it otherwise: where the gradient of an embedding is compiled, both threads add to it in
the order in which they arrive (three runs of a model compiled whole ended with three different
weights), and on GPUs whatever adds atomically. On a CPU with the layers compiled one by one the
weights were the same without it: there it asks for no other kernel.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_settings: Any = torch.utils.deterministic  # a module with a property, which no checker knows
_NO_KERNEL = " does not have a deterministic implementation"


def fix_workspace() -> None:
    """Make cuBLAS deterministic. It reads this when it is first used, and never again."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def seed_rank(seed: int, rank: int) -> None:
    """Begin the random stream of a rank: the run's own on the first, another on each other one."""
    if rank:
        seed = int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])
    torch.manual_seed(seed)


@contextmanager
def deterministic_algorithms(wanted: bool, report: Callable[[str], None]) -> Iterator[None]:
    """Inside the block PyTorch sums in a fixed order, compiled code included, if that is `wanted`.

    An operation that cannot (some on GPUs) is named in a line and computed all the same.
    """
    if not wanted:
        yield
        return
    fix_workspace()
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        _settings.fill_uninitialized_memory,
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    # To fill new memory shows a bug, but does not make a sum any more exact.
    _settings.fill_uninitialized_memory = False
    try:
        with _named_kernels(report):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        _settings.fill_uninitialized_memory = before[2]


@contextmanager
def _named_kernels(report: Callable[[str], None]) -> Iterator[None]:
    """Turn PyTorch's warnings of kernels that are not deterministic into one line for each."""
    show, named = warnings.showwarning, set()

    def name(message: Warning | str, *place: Any, **more: Any) -> None:
        operation, found, _ = str(message).partition(_NO_KERNEL)
        if not found:
            show(message, *place, **more)
        elif operation not in named:
            named.add(operation)
            report(f"{operation} has no deterministic kernel here: runs may differ in the last bit")

    warnings.showwarning = name
    try:
        yield
    finally:
        warnings.showwarning = show


def arithmetic(*, is_compiled: bool, ranks: int = 1, parallel: str | None = None) -> dict[str, Any]:
    """What the last bits of a sum depend on, beside the recipe and the data.

    Whether steps are compiled is more than the recipe's word: where it fails they go on without.
    """
    found: dict[str, Any] = {
        "compilation": "on" if is_compiled else "off",
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "ranks": ranks,
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }
    # How one rank would share its work is no question.
    return found if parallel is None else {**found, "parallel": parallel}


def arithmetic_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """How the `arithmetic` of now differs from that of `before`, in words."""
    return [
        f"{name} was {before[name]} and is {now[name]}"
        for name in now
        if before.get(name, now[name]) != now[name]
    ]

"""What the tests of whole runs look at, and how they stop one."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from llamita.training.records.metrics import OF_THE_MACHINE, read_metrics
from llamita.training.records.observer import Observer


def weights_of(run: Path, name: str = "latest") -> dict[str, torch.Tensor]:
    """The tensors of a model directory of a run."""
    return load_file(run / name / "model.safetensors")


def are_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """The same tensors to the bit."""
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The lines of the log, without what depends on the machine and its load."""
    lines = read_metrics(run / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k not in OF_THE_MACHINE} for line in lines]


def assert_same_runs(a: Path, b: Path) -> None:
    """Two finished runs left the same models and the same log."""
    assert are_same(weights_of(a), weights_of(b))
    assert are_same(weights_of(a, "best"), weights_of(b, "best"))
    assert metrics_of(a) == metrics_of(b)


def stop_after(step: int) -> Observer:
    """An observer that presses Ctrl-C during a step."""

    def on_step(now: int, steps: int, loss: float, rate: float) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGINT)

    return Observer(say=lambda text: None, on_step=on_step)


def listener() -> tuple[Observer, list[str]]:
    """An observer, and the list of the lines it will have been told."""
    said: list[str] = []
    return Observer(say=said.append, on_step=lambda *args: None), said

"""Compiling the loss, where there is a compiler; one line where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import torch

from llamita.training.step import LossSum


def has_compiler(device: torch.device) -> bool:
    """Whether torch.compile can work: C++ for the CPU, Triton for a CUDA GPU."""
    if device.type == "cpu":
        names = (os.environ.get("CXX"), "g++", "clang++")
        return any(name and shutil.which(name) for name in names)
    return device.type == "cuda"


def compile_loss(loss_sum: LossSum, report: Callable[[str], None]) -> LossSum:
    """`loss_sum` compiled at its first call, or itself, with one line that says why."""
    compiled: LossSum = torch.compile(loss_sum, dynamic=False)
    state = {"function": compiled, "tried": False}

    def first_try(input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        function: LossSum = state["function"]  # type: ignore[assignment]
        if state["tried"]:
            return function(input_ids, labels)
        state["tried"] = True
        try:
            return function(input_ids, labels)
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            report(f"going on without compilation: {reason[:200]}")
            state["function"] = loss_sum
            return loss_sum(input_ids, labels)

    return first_try

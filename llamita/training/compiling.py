"""Compiling the loss, where there is a compiler; one line where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import torch
from torch import Tensor

from llamita.training.step import LossSum


def has_compiler(device: torch.device) -> bool:
    """Whether torch.compile can work: C++ for the CPU, Triton for a CUDA GPU."""
    if device.type == "cpu":
        names = (os.environ.get("CXX"), "g++", "clang++")
        return any(name and shutil.which(name) for name in names)
    return device.type == "cuda"


class CompiledLoss:
    """A loss compiled at its first call, which goes on without that where compiling fails.

    `warm_up` compiles both directions at once: a failure of the backward pass, which is compiled
    after the forward one, could not be mended later.
    """

    def __init__(self, loss_sum: LossSum, report: Callable[[str], None]) -> None:
        self._plain = loss_sum
        self._function: LossSum = torch.compile(loss_sum, dynamic=False)
        self._report = report

    def warm_up(
        self, input_ids: Tensor, labels: Tensor, document_ids: Tensor | None = None
    ) -> None:
        """Compile for the shape of these (each [B, T]); leaves gradients behind."""
        try:
            self._function(input_ids, labels, document_ids).backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            self._give_up(error)

    def __call__(
        self, input_ids: Tensor, labels: Tensor, document_ids: Tensor | None = None
    ) -> Tensor:
        try:
            return self._function(input_ids, labels, document_ids)
        except Exception as error:
            if self._function is self._plain:
                raise
            self._give_up(error)
            return self._plain(input_ids, labels, document_ids)

    def _give_up(self, error: Exception) -> None:
        reason = next(iter(str(error).strip().splitlines()), repr(error))
        self._report(f"going on without compilation: {reason[:200]}")
        self._function = self._plain

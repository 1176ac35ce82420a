"""Compiling what a training step computes, where there is a compiler; one line where there is none.

One layer is compiled and one chunk of the loss: the code of a layer serves all layers, so that a
deep model compiles as fast as a shallow one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from llamita.errors import TrainingError
from llamita.model import Transformer
from llamita.training.ranks.failures import first_line, is_broken_connection, is_out_of_memory
from llamita.training.ranks.sharding import compile_layer, is_sharded
from llamita.training.steps.step import Compile, LossSum

# Compiling takes about half a minute on two cores; a shorter run does not win it back.
_COMPILE_FROM_SECONDS = 120.0


def has_compiler(device: torch.device) -> bool:
    """Whether torch.compile can work: C++ for the CPU, Triton for a CUDA GPU."""
    if device.type == "cpu":
        names = (os.environ.get("CXX"), "g++", "clang++")
        return any(name and shutil.which(name) for name in names)
    return device.type == "cuda"


def choose_compilation(
    wanted: str, device: torch.device, expected_seconds: float
) -> tuple[Literal["on", "off"], str]:
    """`on` or `off`, and the reason in words. `auto` compiles where a run wins it back."""
    if wanted != "auto":
        return ("on" if wanted == "on" else "off"), "as asked"
    if expected_seconds < _COMPILE_FROM_SECONDS:
        return "off", "the run is short"
    if not has_compiler(device):
        return "off", "no C++ compiler" if device.type == "cpu" else f"not done on {device.type}"
    return "on", "the run is long"


def compile_failure(device: torch.device) -> str | None:
    """Why torch.compile does not work in this process, tried on a sum; None where it does."""
    if not has_compiler(device):
        return "there is no compiler"
    try:
        torch.compile(_sum, dynamic=False)(torch.ones(8, device=device))
    except Exception as error:
        return first_line(error)
    return None


def _sum(values: Tensor) -> Tensor:
    return (2 * values + 1).sum()


class CompiledLoss:
    """A loss of a model whose layers are compiled, which goes on without that where it fails.

    A model in shards cannot: there a failure is an error.

    `warm_up` compiles both directions at once: a failure of the backward pass, which is compiled
    after the forward one, could not be mended later.

    Args:
        model: its layers are compiled, and called so by whoever else calls them.
        make_loss: the loss, from what to compile its parts with.
        report: takes the line that says why nothing is compiled.
    """

    def __init__(
        self,
        model: Transformer,
        make_loss: Callable[[Compile], LossSum],
        report: Callable[[str], None],
    ) -> None:
        compiled = partial(torch.compile, dynamic=False)
        self._undo = [compile_layer(layer) for layer in model.model.layers]
        self._plain = make_loss(lambda function: function)
        self._function = make_loss(compiled)
        self._model = model
        self._report = report

    @property
    def is_compiled(self) -> bool:
        """Whether it did not fail so far."""
        return self._function is not self._plain

    def warm_up(
        self, input_ids: Tensor, labels: Tensor, document_ids: Tensor | None = None
    ) -> None:
        """Compile for the shape of these (each [B, T]); leaves gradients behind."""
        try:
            self._function(input_ids, labels, document_ids).backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            self._give_up_for(error)

    def __call__(
        self, input_ids: Tensor, labels: Tensor, document_ids: Tensor | None = None
    ) -> Tensor:
        try:
            return self._function(input_ids, labels, document_ids)
        except Exception as error:
            if not self.is_compiled:
                raise
            self._give_up_for(error)
            return self._plain(input_ids, labels, document_ids)

    def give_up(self, reason: str) -> None:
        """Go on without compilation."""
        self._report(f"going on without compilation: {reason}")
        for undo in self._undo:
            undo()
        self._function = self._plain

    def _give_up_for(self, error: Exception) -> None:
        if is_broken_connection(error):  # which no other way of computing mends
            raise error
        if is_sharded(self._model):  # other ranks are amid this pass, and would wait for its rest
            if is_out_of_memory(error):
                raise error
            raise TrainingError(
                f"the steps cannot be compiled: {first_line(error)}",
                hint="Begin the run without: --set machine.compile=off",
            ) from error
        self.give_up(first_line(error))

"""Reading a model without changing it: dropout off inside a block, every module as it was after."""

from __future__ import annotations

from types import TracebackType

from torch import nn


class Evaluating:
    """Context manager that puts a model into evaluation mode and every module back at the end.

    One object serves any number of blocks, so that an evaluation can leave the mode between its
    passes, while the caller's code runs, at no cost worth speaking of.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        self._were_training: list[nn.Module] = []

    def __enter__(self) -> None:
        self._were_training = [module for module in self._modules if module.training]
        for module in self._were_training:
            module.training = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for module in self._were_training:
            module.training = True

"""What a run minimizes, and what it is judged by: the same but for a teacher and several ranks."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from llamita.model import Transformer
from llamita.training.machine.determinism import arithmetic
from llamita.training.ranks.sharding import is_sharded
from llamita.training.ranks.world import World
from llamita.training.records.observer import Observer
from llamita.training.settings.recipe import Recipe
from llamita.training.steps.compiling import CompiledLoss, compile_failure
from llamita.training.steps.distillation import distillation_loss_sum
from llamita.training.steps.parallel import ReplicatedLoss, replicated
from llamita.training.steps.step import LossSum, loss_sum_function


class Losses:
    """`training` is the loss of the steps; `plain`, of validations, is the text's alone.

    Backward passes of `training` leave gradients that are means over the ranks. `may_compile` until
    that was tried.
    """

    def __init__(
        self,
        model: Transformer,
        recipe: Recipe,
        device: torch.device,
        teacher: Transformer | None,
        world: World,
    ) -> None:
        self._model = model
        self._world = world
        precision = recipe.machine.precision
        self._make = partial(loss_sum_function, model, precision, device)
        self.plain: LossSum = self._make()
        self._has_teacher = teacher is not None and recipe.teacher is not None
        if teacher is not None and recipe.teacher is not None:
            self._make = partial(
                distillation_loss_sum, model, teacher, recipe.teacher, precision, device
            )
        self._own: LossSum = self._make() if self._has_teacher else self.plain
        self.training = self._own
        self.may_compile = True
        self._shared: ReplicatedLoss | None = None
        if world.size > 1 and not is_sharded(model):
            self._shared = ReplicatedLoss(model, self._own)
            self.training = replicated(self._shared, device)

    @property
    def is_compiled(self) -> bool:
        """Whether the steps are, and that did not fail so far."""
        return isinstance(self._own, CompiledLoss) and self._own.is_compiled

    def arithmetic(self) -> dict[str, Any]:
        """What the last bits of its sums depend on."""
        if self._world.size == 1:
            return arithmetic(is_compiled=self.is_compiled)
        kind = "fsdp" if is_sharded(self._model) else "ddp"
        return arithmetic(is_compiled=self.is_compiled, ranks=self._world.size, parallel=kind)

    def compile(self, inputs: tuple[Tensor, Tensor, Tensor | None], observer: Observer) -> None:
        """Compile for the shapes of `inputs`, on all ranks or on none; leaves no gradients."""
        self.may_compile = False
        # Before the first pass: one that some ranks break off leaves the others waiting.
        failures = self._world.gather(self._compile_failure(inputs[0].device))
        for rank, failure in enumerate(failures):
            if failure is not None:
                whose = f"rank {rank}: " if rank else ""
                observer.say(f"going on without compilation: {whose}{failure}")
                return
        compiled = CompiledLoss(self._model, self._make, observer.say)
        compiled.warm_up(*inputs)
        [failed] = self._world.any(not compiled.is_compiled)
        if failed and compiled.is_compiled:
            compiled.give_up("another rank could not compile")
        self._model.zero_grad(set_to_none=True)
        self._own = compiled
        if not self._has_teacher:
            self.plain = compiled
        if self._shared is None:
            self.training = compiled
        else:
            self._shared.loss_sum = compiled

    def _compile_failure(self, device: torch.device) -> str | None:
        """Of one process alone, its own pass shows it."""
        return compile_failure(device) if self._world.size > 1 else None

"""What a run minimizes, and what it is judged by: the same but for a teacher and several ranks."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from llamita.model import Transformer
from llamita.training.compiling import CompiledLoss, has_compiler
from llamita.training.distillation import distillation_loss_sum
from llamita.training.observer import Observer
from llamita.training.parallel import ReplicatedLoss, replicated
from llamita.training.recipe import Recipe
from llamita.training.sharding import is_sharded
from llamita.training.step import LossSum, loss_sum_function
from llamita.training.world import World


class Losses:
    """`training` is the loss of the steps; `plain`, of validations, is the text's alone.

    Backward passes of `training` leave gradients that are means over the ranks.
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
        self._shared: ReplicatedLoss | None = None
        if world.size > 1 and not is_sharded(model):
            self._shared = ReplicatedLoss(model, self._own)
            self.training = replicated(self._shared, device)

    @property
    def is_compiled(self) -> bool:
        """Whether the steps are, and that did not fail so far."""
        return isinstance(self._own, CompiledLoss) and self._own.is_compiled

    @property
    def may_compile(self) -> bool:
        """Whether nobody tried yet."""
        return not isinstance(self._own, CompiledLoss)

    def compile(self, inputs: tuple[Tensor, Tensor, Tensor | None], observer: Observer) -> None:
        """Compile for the shapes of `inputs`, on all ranks or on none; leaves no gradients."""
        device = inputs[0].device
        if self._world.size > 1 and self._world.any(not has_compiler(device))[0]:
            observer.say("going on without compilation: not every rank has a compiler")
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

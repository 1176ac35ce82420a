"""Optimizers: AdamW with decay on matrices alone, or Muon for the layers' matrices."""

from __future__ import annotations

from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import AdamW
from torch.optim import Optimizer as TorchOptimizer

from llamita.training.ranks.sharding import whole
from llamita.training.settings.recipe import Optimizer
from llamita.training.steps.muon import Muon


def build_optimizers(model: nn.Module, recipe: Optimizer, precision: str) -> list[TorchOptimizer]:
    """One optimizer, or Muon (arXiv:2502.16982) beside AdamW for tables, norms and biases.

    Muon's update is scaled to the size of AdamW's, so one learning rate serves both; it is computed
    in `precision`, `float32` or `bfloat16`. `set_learning_rate` comes before every step.
    """
    matrices, tables, vectors = _split_parameters(model)
    if not all(parameter.requires_grad for parameter in model.parameters()):
        # Of frozen tables with a few rows to train, decay would move the others.
        tables, vectors = [], [*tables, *vectors]
    muon = recipe.name == "muon"
    decayed = tables if muon else matrices + tables
    groups = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    adamw = AdamW(
        [group for group in groups if group["params"]],
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.eps,
        fused=True,
    )
    if not muon:
        return [adamw]
    return [
        Muon(
            matrices,
            weight_decay=recipe.weight_decay,
            momentum=recipe.muon_momentum,
            precision=precision,
        ),
        adamw,
    ]


def set_learning_rate(optimizers: list[TorchOptimizer], learning_rate: float) -> None:
    """Give every parameter group the rate of this step."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate


def _split_parameters(
    model: nn.Module,
) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """The layers' matrices, the token tables, and everything one-dimensional, if it is trained.

    `named_parameters` gives a tied table once.
    """
    matrices: list[nn.Parameter] = []
    tables: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.dim() < 2:
            vectors.append(parameter)
        elif name.startswith(("model.embed_tokens", "lm_head")):
            tables.append(parameter)
        else:
            matrices.append(parameter)
    return matrices, tables, vectors


def clip_gradients(model: nn.Module, largest: float) -> float:
    """Scale gradients so that their norm, over all ranks, is at most `largest`; what it was."""
    parameters = [one for one in model.parameters() if one.grad is not None]
    gradients = [one.grad for one in parameters if one.grad is not None]
    norm = whole(get_total_norm(gradients, foreach=True))
    clip_grads_with_norm_(parameters, largest, norm, foreach=True)
    return float(norm)

"""Optimizers: AdamW with decay on matrices alone, or Muon for the layers' matrices."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim import Optimizer as TorchOptimizer

from llamita.training.muon import Muon
from llamita.training.recipe import Optimizer


def build_optimizers(model: nn.Module, recipe: Optimizer, precision: str) -> list[TorchOptimizer]:
    """One optimizer, or Muon (arXiv:2502.16982) beside AdamW for tables, norms and biases.

    Muon's update is scaled to the size of AdamW's, so one learning rate serves both; it is computed
    in `precision`, `float32` or `bfloat16`. `set_learning_rate` comes before every step.
    """
    matrices, tables, vectors = _split_parameters(model)
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
    """The layers' matrices, the token tables, and everything one-dimensional.

    `named_parameters` gives a tied table once.
    """
    matrices: list[nn.Parameter] = []
    tables: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            vectors.append(parameter)
        elif name.startswith(("model.embed_tokens", "lm_head")):
            tables.append(parameter)
        else:
            matrices.append(parameter)
    return matrices, tables, vectors


def clip_gradients(model: nn.Module, largest: float) -> float:
    """Scale gradients so that their norm is at most `largest`; the norm they had."""
    return float(torch.nn.utils.clip_grad_norm_(model.parameters(), largest, foreach=True))

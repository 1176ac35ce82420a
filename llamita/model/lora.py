"""Low-rank adapters (LoRA, arXiv:2106.09685): what is trained in place of a model's matrices.

A frozen weight W [R, C] gets two small matrices, A [r, C] and B [R, r], and computes with
W + (alpha / r) B A. B begins as zeros, so that a model with fresh adapters is the model itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llamita.model.transformer import Transformer

DOWN, UP = "lora_A", "lora_B"
"""The last part of the names of A and B in a state dict."""


class LowRankLinear(nn.Linear):
    """A linear layer with an adapter; its weight and bias are those of `linear`, and frozen.

    dropout: share of the inputs that the adapter is not given while it is trained.
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float, dropout: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.register_parameter("bias", linear.bias)
        device = linear.weight.device
        self.lora_A = nn.Parameter(torch.empty(rank, self.in_features, device=device))
        self.lora_B = nn.Parameter(torch.zeros(self.out_features, rank, device=device))
        self.scale = alpha / rank
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """[..., C] -> [..., R]."""
        y = F.linear(x, self.weight, self.bias)
        # Samples drawn on the way see all of it, though the model is being trained.
        if self.dropout and self.training and torch.is_grad_enabled():
            x = F.dropout(x, self.dropout)
        return y + F.linear(F.linear(x, self.lora_A), self.lora_B) * self.scale

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw A as `nn.Linear` draws its weight, and as PEFT does."""
        bound, drawn = 1 / math.sqrt(self.in_features), torch.empty(self.lora_A.shape)
        self.lora_A.copy_(drawn.uniform_(-bound, bound, generator=generator))


def add_adapters(
    model: Transformer,
    targets: Collection[str],
    *,
    rank: int,
    alpha: float,
    dropout: float = 0.0,
    tokens: Sequence[int] = (),
    seed: int = 0,
) -> None:
    """Freeze a model, in place, and give it adapters, which alone are trained.

    Args:
        targets: last names of the layers' matrices (`q_proj`, …).
        tokens: ids whose rows of the tables are trained as well.
        seed: of the first values.
    """
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for owner, name in _linears(model, targets):
        adapter = LowRankLinear(getattr(owner, name), rank, alpha, dropout)
        adapter.initialize(generator)
        setattr(owner, name, adapter)
    if dropout:
        model.model.draws = True
    if tokens:
        for table in {model.model.embed_tokens.weight, model.lm_head.weight}:
            _train_rows(table, tokens)


def merged(weight: Tensor, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """A weight [R, C] with its adapter, down [r, C] and up [R, r], in float32."""
    return weight.float() + scale * (up.float() @ down.float())


def _linears(model: Transformer, targets: Collection[str]) -> Iterator[tuple[nn.Module, str]]:
    for layer in model.model.layers:
        for owner in list(layer.modules()):
            for name, module in list(owner.named_children()):
                if name in targets and isinstance(module, nn.Linear):
                    yield owner, name


def _train_rows(table: Tensor, rows: Sequence[int]) -> None:
    """Let gradients reach these rows of a table alone."""
    chosen = torch.zeros(len(table), 1, dtype=table.dtype, device=table.device)
    chosen[list(rows)] = 1
    table.requires_grad_(True)

    def chosen_alone(gradient: Tensor) -> Tensor:
        return gradient * chosen.to(gradient.device)

    table.register_hook(chosen_alone)  # type: ignore[no-untyped-call]

"""The head and its cross-entropy in one, a chunk of tokens at a time.

The logits of a whole batch would be the largest tensor of a training step by far: 4,096 tokens and
a vocabulary of 128,000 make two gigabytes, and as much again for their gradients. Here each chunk's
logits become gradients at once and are gone; what is kept for the backward pass has the sizes of
the hidden states and of the head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.data.rows import IGNORED

ChunkLoss = Callable[[Tensor, Tensor, slice], tuple[Tensor, Tensor]]
"""From logits [N, V] and labels [N] of a chunk, and the rows it is: the summed loss, a float32
scalar, and its gradient by the logits [N, V], in their dtype."""

# Logits of a chunk: on a CPU they should stay near its caches, on a GPU keep all of it busy.
_CHUNK_VALUES = 1 << 22
_CHUNK_VALUES_ON_GPU = 1 << 26
_FEWEST_ROWS = 128  # fewer would read the head's weights more often than their products take


def chunk_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy in nats of logits [N, V] and labels [N], and its gradient: see `ChunkLoss`."""
    wide = logits.float()
    log_sums = wide.logsumexp(-1, keepdim=True)
    counts = (labels != IGNORED)[:, None]
    targets = labels.clamp(min=0)[:, None]
    loss = torch.where(counts, log_sums - wide.gather(-1, targets), 0.0).sum()
    is_target = torch.arange(logits.shape[-1], device=logits.device) == targets
    gradient = torch.where(counts, (wide - log_sums).exp() - is_target.float(), 0.0)
    return loss, gradient.to(logits.dtype)


def head_loss_sum(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    dtype: torch.dtype,
    of_chunk: ChunkLoss,
    chunk_rows: int | None = None,
) -> Tensor:
    """The loss of a head over hidden states, summed over all labelled tokens.

    Args:
        hidden: [..., C] before the head.
        weight: the head's, [V, C].
        labels: [...]; `IGNORED` ones count for nothing.
        dtype: what the products are computed in. Gradients of the weight add up in float32.
        of_chunk: the loss of a chunk and its gradient.
        chunk_rows: tokens of a chunk; left out, as many as suit the vocabulary and the device.

    Returns:
        A float32 scalar; gradients flow to `hidden` and `weight`, once.
    """
    loss: Tensor = _HeadLoss.apply(  # type: ignore[no-untyped-call]
        hidden.flatten(0, -2), weight, labels.flatten(), dtype, of_chunk, chunk_rows
    )
    return loss


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        dtype: torch.dtype,
        of_chunk: ChunkLoss,
        chunk_rows: int | None,
    ) -> Tensor:
        wants_gradients, of_weight = any(ctx.needs_input_grad), ctx.needs_input_grad[1]
        narrow = weight.to(dtype)
        total = torch.zeros((), device=hidden.device)
        if wants_gradients:
            d_hidden = torch.empty_like(hidden)
        if of_weight:
            d_weight = torch.zeros_like(weight, dtype=torch.float32)
        for rows in _chunks(len(labels), chunk_rows or rows_of_chunk(weight)):
            states = hidden[rows].to(dtype)
            loss, d_logits = of_chunk(F.linear(states, narrow), labels[rows], rows)
            total += loss
            if wants_gradients:
                d_hidden[rows] = d_logits @ narrow
            if of_weight:
                d_weight += d_logits.mT @ states
        if wants_gradients:
            ctx.save_for_backward(d_hidden, d_weight.to(weight.dtype) if of_weight else None)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight = ctx.saved_tensors
        [scale] = gradients
        of_weight = None if d_weight is None else d_weight * scale
        return d_hidden * scale.to(d_hidden.dtype), of_weight, None, None, None, None


def rows_of_chunk(weight: Tensor) -> int:
    """How many tokens a chunk has where nobody says otherwise."""
    values = _CHUNK_VALUES if weight.device.type == "cpu" else _CHUNK_VALUES_ON_GPU
    return max(_FEWEST_ROWS, values // weight.shape[0])


def _chunks(tokens: int, rows: int) -> list[slice]:
    """Of at most `rows`, as alike as can be, so that few shapes are compiled."""
    rows = math.ceil(tokens / max(1, math.ceil(tokens / rows)))
    return [slice(start, min(start + rows, tokens)) for start in range(0, tokens, max(1, rows))]

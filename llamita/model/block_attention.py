"""Attention over whole rows on a CPU: plain matrix products, one block of queries at a time.

PyTorch's kernel for `scaled_dot_product_attention` on CPUs spends three times its forward pass on
the backward one, and makes little use of bfloat16 instructions. Products of blocks run as fast as
any others: a block of queries looks at no key
after its last, so little of what is masked is computed, and the backward pass computes each
block's weights anew from the row sums that the forward pass kept (as FlashAttention does,
arXiv:2205.14135), so that memory grows with the length of a row and not with its square.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_QUERIES = 128  # a block's


def block_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Causal attention of rows read whole: [B, H, T, D], as q; k and v are [B, K, T, D].

    mask: [B or 1, 1, T, T], True where a query may look; it must be causal itself, and let every
    query see a key. The softmax is computed in float32, of scores rounded to the dtype of q, as
    plain products give them: in bfloat16 up to twice as far from float32 as PyTorch's kernel
    (docs/experiments.md).
    """
    output: Tensor = _BlockAttention.apply(q, k, v, mask)  # type: ignore[no-untyped-call]
    return output


class _BlockAttention(torch.autograd.Function):
    """Query heads that share keys are rows of one product: [B, K, G, T, D] and [B, K, T, D]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        grouped = _grouped(q, k)
        outputs, sums = [], []
        for start, end in _blocks(q.shape[2]):
            scores = _scores(grouped[..., start:end, :], k[:, :, :end], mask, start)
            log_sum = scores.logsumexp(-1, keepdim=True)
            weights = (scores - log_sum).exp_().to(v.dtype)
            outputs.append(_times(weights, v[:, :, :end]))
            sums.append(log_sum)
        output = torch.cat(outputs, dim=3).flatten(1, 2)
        ctx.save_for_backward(q, k, v, mask, output, torch.cat(sums, dim=3))
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, mask, output, log_sums = ctx.saved_tensors
        [d_output] = gradients
        # What a weight's gradient is measured against: the mean of the row's, [B, K, G, T, 1].
        means = (d_output.float() * output.float()).sum(-1, keepdim=True)
        means, q, d_output = (_grouped(x, k) for x in (means, q, d_output))
        d_q, d_k, d_v = [], torch.zeros_like(k), torch.zeros_like(v)
        scale = 1 / math.sqrt(q.shape[-1])
        for start, end in _blocks(q.shape[3]):
            rows = (..., slice(start, end), slice(None))
            keys, values = k[:, :, :end], v[:, :, :end]
            weights = (_scores(q[rows], keys, mask, start) - log_sums[rows]).exp_()
            d_weights = _times(d_output[rows], values.mT).float()
            d_scores = ((d_weights - means[rows]) * weights * scale).to(q.dtype)
            d_q.append(_times(d_scores, keys))
            d_k[:, :, :end] += _folded(d_scores).mT @ _folded(q[rows])
            d_v[:, :, :end] += _folded(weights.to(v.dtype)).mT @ _folded(d_output[rows])
        return torch.cat(d_q, dim=3).flatten(1, 2), d_k, d_v, None


def _blocks(time: int) -> Iterator[tuple[int, int]]:
    for start in range(0, time, _QUERIES):
        yield start, min(start + _QUERIES, time)


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, start: int) -> Tensor:
    """Of queries [B, K, G, t, D] from `start` on, for keys [B, K, S, D]: [B, K, G, t, S] float32.

    S is the end of the block; the queries' own keys are its last.
    """
    scores = _times(q, k.mT).float() * (1 / math.sqrt(q.shape[-1]))
    time, seen = scores.shape[-2:]
    if mask is None:
        later = torch.ones(time, seen, dtype=torch.bool, device=q.device).triu(start + 1)
        return scores.masked_fill(later, -math.inf)
    return scores.masked_fill(~mask[:, :, None, start : start + time, :seen], -math.inf)


def _times(x: Tensor, shared: Tensor) -> Tensor:
    """[B, K, G, t, M] times what the heads of a group share, [B, K, M, N]: [B, K, G, t, N]."""
    return (_folded(x) @ shared).view(*x.shape[:4], -1)


def _grouped(x: Tensor, k: Tensor) -> Tensor:
    """[B, H, T, N] -> [B, K, G, T, N], for keys [B, K, T, D]."""
    return x.reshape(x.shape[0], k.shape[1], -1, *x.shape[2:])


def _folded(x: Tensor) -> Tensor:
    """[B, K, G, t, N] -> [B, K, G × t, N]."""
    return x.flatten(2, 3)

"""RMSNorm, computed in float32 whatever the precision around it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Root-mean-square normalization over the last dimension (arXiv:1910.07467).

    The statistics are float32; the result is cast back before it meets the weight, as the
    reference Llama does, so that lower precisions round in the same place.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """[..., C] -> [..., C], in the dtype of `x`."""
        normal = x.float()
        normal = normal * torch.rsqrt(normal.square().mean(-1, keepdim=True) + self.eps)
        return self.weight.to(x.dtype) * normal.to(x.dtype)

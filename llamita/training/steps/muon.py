"""Muon that orthogonalizes in the number format a run computes in.

PyTorch's own does it in bfloat16 everywhere: without the processor's instructions for that, a step
of the demo's small model spends 25 seconds there, and in float32 a fraction of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from llamita.training.machine.precision import DTYPES
from llamita.training.ranks.sharding import spread_like, whole

_BATCH = 1 << 22  # values that are orthogonalized at once


class Muon(torch.optim.Muon):
    """Muon (Keller Jordan) with updates as large as AdamW's (arXiv:2502.16982, section 2.2).

    Everything but the format of the iteration is as in `torch.optim.Muon` with
    `adjust_lr_fn="match_rms_adamw"`; state dicts load in both directions. The precision is no part
    of them: it is the run's own, which its recipe holds.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float = 1e-3,
        weight_decay: float,
        momentum: float,
        precision: str,
    ) -> None:
        """Take the matrices `params` [R, C]; precision: `float32` or `bfloat16`."""
        super().__init__(
            params,
            lr=lr,
            weight_decay=weight_decay,
            momentum=momentum,
            adjust_lr_fn="match_rms_adamw",
        )
        self._dtype = DTYPES[precision]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every matrix that has a gradient; what `closure` returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for matrices in _batches(group["params"]):
                self._move(matrices, group)
        return loss

    def _move(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        """Take a step with matrices of one shape.

        Where they lie in shards, every rank orthogonalizes all of each, alike, and moves its part.
        """
        directions = orthogonalize(
            torch.stack([whole(self._ahead(matrix, group["momentum"])) for matrix in matrices]),
            self._dtype,
            group["ns_coefficients"],
            group["ns_steps"],
            group["eps"],
        )
        rate = float(group["lr"])
        # An orthogonal [R, C] has a mean square of 1 / max(R, C); AdamW's updates have about 0.2².
        scale = 0.2 * math.sqrt(max(matrices[0].shape))
        for matrix, direction in zip(matrices, directions, strict=True):
            matrix.mul_(1 - rate * group["weight_decay"])
            matrix.add_(spread_like(direction, matrix), alpha=-scale * rate)

    def _ahead(self, matrix: Tensor, momentum: float) -> Tensor:
        """Nesterov's momentum: the running average, and a step further."""
        gradient, state = matrix.grad, self.state[matrix]
        assert gradient is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(average, momentum)


def _batches(parameters: list[Tensor]) -> Iterator[list[Tensor]]:
    """Those that have a gradient, by shape: few large products are quicker than many small."""
    by_shape: dict[torch.Size, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            by_shape.setdefault(parameter.shape, []).append(parameter)
    for shape, alike in by_shape.items():
        count = max(1, _BATCH // shape.numel())
        for start in range(0, len(alike), count):
            yield alike[start : start + count]


def orthogonalize(
    matrices: Tensor,
    dtype: torch.dtype,
    coefficients: tuple[float, float, float],
    steps: int,
    eps: float,
) -> Tensor:
    """Bring the singular values of each of `matrices` [N, R, C] near 1; the vectors stay.

    A quintic Newton-Schulz iteration x ← a x + b (x xᵀ) x + c (x xᵀ)² x. Keller Jordan's
    coefficients grow small values fast and end between about 0.7 and 1.2, not at 1.
    https://kellerjordan.github.io/posts/muon/
    """
    a, b, c = coefficients
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.to(dtype)
    x = x.mT if is_tall else x  # the smaller x xᵀ
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)  # bounds every singular value
    for _ in range(steps):
        square = x @ x.mT
        polynomial = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if is_tall else x

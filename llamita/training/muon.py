"""Muon that orthogonalizes in the number format a run computes in.

PyTorch's own does it in bfloat16 everywhere: without the processor's instructions for that, a step
of the demo's small model spends 25 seconds there, and in float32 a fraction of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

# The number formats of a recipe's `machine.precision`.
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


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
        lr: float,
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
        self._dtype = _DTYPES[precision]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every matrix that has a gradient; what `closure` returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._move(matrix, matrix.grad, group)
        return loss

    def _move(self, matrix: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        average = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        ahead = gradient.lerp(average, group["momentum"])  # Nesterov's
        direction = orthogonalize(
            ahead, self._dtype, group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        rate = float(group["lr"])
        matrix.mul_(1 - rate * group["weight_decay"])
        # An orthogonal [R, C] has a mean square of 1 / max(R, C); AdamW's updates have about 0.2².
        matrix.add_(direction, alpha=-0.2 * math.sqrt(max(matrix.shape)) * rate)


def orthogonalize(
    matrix: Tensor,
    dtype: torch.dtype,
    coefficients: tuple[float, float, float],
    steps: int,
    eps: float,
) -> Tensor:
    """Bring the singular values of `matrix` [R, C] near 1 and leave its singular vectors.

    A quintic Newton-Schulz iteration x ← a x + b (x xᵀ) x + c (x xᵀ)² x. Keller Jordan's
    coefficients grow small values fast and end between about 0.7 and 1.2, not at 1.
    https://kellerjordan.github.io/posts/muon/
    """
    a, b, c = coefficients
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(dtype)
    x = x.T if is_tall else x  # the smaller x xᵀ
    x = x / x.norm().clamp(min=eps)  # no singular value is above the Frobenius norm
    for _ in range(steps):
        square = x @ x.T
        polynomial = torch.addmm(square, square, square, beta=b, alpha=c)
        x = torch.addmm(x, polynomial, x, beta=a)
    return x.T if is_tall else x

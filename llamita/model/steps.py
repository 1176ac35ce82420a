"""What a layer computes when only reading, in steps that are compiled on request.

The same formulas as the modules of `transformer.py`, in fewer steps and with nothing kept for a
backward pass. Rows of all sequences lie one below the other, [N, C].
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llamita.model.decode_plan import OneRead
from llamita.model.precision import is_slow, linear

Projection: TypeAlias = "Sequence[tuple[Tensor, Tensor | None] | nn.Module]"
"""Linear maps of one input: weight and bias, or a module that is more than these."""

Norm: TypeAlias = "tuple[Tensor, Tensor]"
"""Weight [C] and epsilon [1] of an `RMSNorm`."""

_log = logging.getLogger(__name__)


class Steps:
    """The functions below, compiled while that is wanted and works.

    Compilers fail early or late: without a C++ compiler at once, over shapes in any later pass.
    Either way one warning is logged, and from then on nothing is compiled.
    """

    def __init__(self, compiles: bool) -> None:
        self._compiled: dict[Callable[..., Any], Callable[..., Any]] = {}
        self._compiles = compiles

    @property
    def are_compiled(self) -> bool:
        """Whether `run` calls what was compiled."""
        return bool(self._compiled)

    def prepare(self, weight: Tensor) -> None:
        """Compile, if it is still to be done, for weights like this one."""
        if not self._compiles or self._compiled:
            return
        try:
            torch.compile(lambda x: x.neg())(torch.ones(2, device=weight.device))
            is_slow(weight.dtype)  # timed now, not inside a trace
            # Calls from C++ between the kernels of a graph: 4 of 25 ms of a step of 135M.
            options: Any = {"cpp_wrapper": True} if weight.device.type == "cpu" else None
            self._compiled = {
                step: torch.compile(step, options=options)
                for step in (before, after, whole_layer, last_logits)
            }
        except Exception as error:  # no compiler, one that fails, no kernels for the device
            self._give_up(error)

    def run(self, step: Callable[..., Any], *given: object) -> Any:
        """`step` of what is given; it must leave that as it is, so that it can be done again."""
        compiled = self._compiled.get(step)
        if compiled is not None:
            try:
                return compiled(*given)
            except Exception as error:  # whatever it is, the step itself raises it again
                self._give_up(error)
        return step(*given)

    def _give_up(self, error: Exception) -> None:
        self._compiles, self._compiled = False, {}
        reason = str(error).strip().partition("\n")[0]
        _log.warning("torch.compile does not work here, so nothing is compiled: %s", reason)


def before(
    x: Tensor,
    norm: Norm,
    qkv: Projection,
    head_norms: Sequence[Norm],
    heads: Sequence[int],
) -> Tensor:
    """The residual stream [N, C] to queries, keys and values, [N, H + K + K, D].

    heads: H, K and K. head_norms: of queries and of keys, or none.
    """
    joined = project(rms_norm(x, *norm), qkv).view(x.shape[0], sum(heads), -1)
    if not head_norms:
        return joined
    q, k, v = torch.split_with_sizes(joined, heads, dim=1)
    return torch.cat((rms_norm(q, *head_norms[0]), rms_norm(k, *head_norms[1]), v), dim=1)


def after(
    x: Tensor,
    y: Tensor,
    output: Projection,
    norm: Norm,
    gate_up: Projection,
    down: Projection,
) -> Tensor:
    """Attention's y [N, H × D], then the feed-forward, added to the residual stream [N, C]."""
    x = x + project(y, output)
    gate, up = project(rms_norm(x, *norm), gate_up).chunk(2, dim=-1)
    return project(F.silu(gate, inplace=True).mul_(up), down).add_(x)


def whole_layer(
    x: Tensor,
    read: OneRead,
    held: Tensor,
    heads: Sequence[int],
    norm: Norm,
    qkv: Projection,
    head_norms: Sequence[Norm],
    output: Projection,
    mlp_norm: Norm,
    gate_up: Projection,
    down: Projection,
) -> Tensor:
    """A decode step's residual stream [N, C] through one layer, whose cache is `held`.

    Not worth its checks uncompiled, so it is only for compiling: see `OneRead`.
    """
    y = read.attend(held, before(x, norm, qkv, head_norms, heads))
    return after(x, y, output, mlp_norm, gate_up, down)


def last_logits(x: Tensor, norm: Norm, head: Projection) -> Tensor:
    """The residual stream [M, C] after the last layer to logits [M, V]."""
    return project(rms_norm(x, *norm), head)


def project(x: Tensor, parts: Projection) -> Tensor:
    """Linear maps of one input: [N, C] -> [N, the sum of their outputs]."""
    products = [
        part(x) if isinstance(part, nn.Module) else linear(x, part[0], part[1]) for part in parts
    ]
    return products[0] if len(products) == 1 else torch.cat(products, dim=-1)


def rms_norm(x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """`RMSNorm` over the last dimension, rounding where the module does.

    Not the module's own formula: what is overwritten here, a backward pass would need. PyTorch's
    mean takes three times as long as its sum, and each number that is no tensor costs a conversion.
    """
    wide = x.float()
    squares = wide.square().sum(-1, keepdim=True)
    scale = torch.add(eps, squares, alpha=1 / x.shape[-1]).rsqrt_()
    return (wide * scale).to(x.dtype).mul_(weight)

"""The layers of a model for reading alone: the same formulas as its modules, in fewer steps.

Projections of the same input are joined, so that a layer is four matrix products; the residual
stream and what only one step needs are changed in place; rows of all sequences lie one below the
other, [N, C], without padding; and the last layer goes on with those rows alone whose logits are
wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llamita.model.norm import RMSNorm
from llamita.model.precision import is_slow, linear
from llamita.model.transformer import DecoderLayer, Transformer

_Projection: TypeAlias = "list[tuple[Tensor, Tensor | None]]"
_Steps: TypeAlias = "tuple[Callable[..., tuple[Tensor, Tensor]], Callable[..., Tensor]]"

_log = logging.getLogger(__name__)


class CachePlan(Protocol):
    """Which slots of a cache one pass writes and reads: worked out once, shared by every layer."""

    def attend(self, layer: int, qk: Tensor, v: Tensor) -> Tensor:
        """Attention of the pass's tokens: qk [N, H + K, D] and v [N, K, D] give [N, H × D].

        Queries and keys come unrotated, the queries first.
        """


class FusedDecoder:
    """A `Transformer` for reading through a cache.

    The joined projections are the model's own weights: its parameters become views of them, so
    nothing is held twice, and what changes a parameter in place (an optimizer's step, loading a
    state dict) changes them. `refresh` notices parameters that were replaced. A model in training
    mode is left as it is.

    compile: compute what lies between attentions through `torch.compile`. Compiled code is kept on
    disk, by PyTorch. Without a working compiler one warning is logged and nothing else differs.
    """

    def __init__(self, model: Transformer, *, compile: bool = False) -> None:
        self._model = model
        self._compiles = compile
        self._parameters = [
            (module._parameters, name)
            for module in model.modules()
            for name in module._parameters
            if module._parameters[name] is not None
        ]
        self._addresses: list[int] = []
        self._layers: list[_Layer] = []
        self._steps: _Steps = _before, _after
        self.refresh()

    @property
    def versions(self) -> tuple[int, ...]:
        """Changes with every weight that is replaced, or written in place where autograd sees it.

        Writing through `.data` escapes it.
        """
        self.refresh()
        weights = [holder[name] for holder, name in self._parameters]
        counts = (0 if w is None or w.is_inference() else w._version for w in weights)
        return (*self._addresses, *counts)

    def refresh(self) -> None:
        """Join anew what was replaced since the last call (by `to`, or assigning `data`)."""
        if self._addresses_now() != self._addresses:
            # Not as inference tensors: the model may be trained again.
            with torch.inference_mode(False), torch.no_grad():
                joins = not self._model.training
                layers = (layer for layer in self._model.model.layers)
                self._layers = [_Layer(layer, joins) for layer in layers]  # type: ignore[arg-type]
            self._addresses = self._addresses_now()
            self._steps = _steps(self._model.lm_head.weight, self._compiles)

    def logits(self, token_ids: Tensor, plan: CachePlan, wanted: Tensor | None = None) -> Tensor:
        """Read token_ids [N]; logits [M, V] after the `wanted` [M] of them, or after all.

        Runs in inference mode.
        """
        decoder = self._model.model
        x = F.embedding(token_ids, decoder.embed_tokens.weight)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            x = layer(x, plan, wanted if index == last else None, self._steps)
        x = rms_norm(x, decoder.norm.weight, decoder.norm.eps)
        return linear(x, self._model.lm_head.weight)

    def _addresses_now(self) -> list[int]:
        weights = (holder[name] for holder, name in self._parameters)
        return [0 if weight is None else weight.data_ptr() for weight in weights]


def _steps(weight: Tensor, compiles: bool) -> _Steps:
    """What lies before and after attention, compiled if that is wanted and works."""
    if not compiles:
        return _before, _after
    try:
        torch.compile(lambda x: x.neg())(torch.ones(2, device=weight.device))
    except Exception as error:  # no compiler, one that fails, no kernels for the device
        reason = str(error).strip().partition("\n")[0]
        _log.warning("torch.compile does not work here, so nothing is compiled: %s", reason)
        return _before, _after
    is_slow(weight.dtype)  # timed now, not inside a trace
    return torch.compile(_before), torch.compile(_after)


class _Layer:
    """One `DecoderLayer`: what lies before attention, attention, and what lies after."""

    def __init__(self, layer: DecoderLayer, joins: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._index = attention.layer
        self._qkv = _projection([attention.q_proj, attention.k_proj, attention.v_proj], joins)
        self._output = _projection([attention.o_proj], joins)
        self._gate_up = _projection([mlp.gate_proj, mlp.up_proj], joins)
        self._down = _projection([mlp.down_proj], joins)
        self._input_norm = layer.input_layernorm.weight
        self._mlp_norm = layer.post_attention_layernorm.weight
        self._eps = layer.input_layernorm.eps
        self._widths = [
            module.out_features // attention.head_dim
            for module in (attention.q_proj, attention.k_proj, attention.v_proj)
        ]
        norms = (attention.q_norm, attention.k_norm)
        self._head_norms = [norm.weight for norm in norms if isinstance(norm, RMSNorm)]

    def __call__(self, x: Tensor, plan: CachePlan, wanted: Tensor | None, steps: _Steps) -> Tensor:
        """[N, C] -> [N, C] in place, or [M, C] for the rows `wanted` [M]."""
        before, after = steps
        qk, v = before(x, self._input_norm, self._eps, self._qkv, self._head_norms, self._widths)
        y = plan.attend(self._index, qk, v)
        if wanted is not None:
            x, y = x[wanted], y[wanted]
        return after(x, y, self._output, self._mlp_norm, self._eps, self._gate_up, self._down)


def _before(
    x: Tensor,
    norm: Tensor,
    eps: float,
    qkv: _Projection,
    head_norms: list[Tensor],
    heads: list[int],
) -> tuple[Tensor, Tensor]:
    """The residual stream [N, C] to qk [N, H + K, D] and v [N, K, D]."""
    joined = _project(rms_norm(x, norm, eps), qkv)
    joined = joined.view(x.shape[0], sum(heads), -1)
    queries, keys, _ = heads
    qk, v = joined[:, : queries + keys], joined[:, queries + keys :]
    if head_norms:
        q = rms_norm(qk[:, :queries], head_norms[0], eps)
        qk = torch.cat((q, rms_norm(qk[:, queries:], head_norms[1], eps)), dim=1)
    return qk, v


def _after(
    x: Tensor,
    y: Tensor,
    output: _Projection,
    norm: Tensor,
    eps: float,
    gate_up: _Projection,
    down: _Projection,
) -> Tensor:
    """Add attention's y [N, H × D], then the feed-forward, to the residual stream [N, C]."""
    x += _project(y, output)
    gate, up = _project(rms_norm(x, norm, eps), gate_up).chunk(2, dim=-1)
    x += _project(F.silu(gate, inplace=True).mul_(up), down)
    return x


def _project(x: Tensor, parts: _Projection) -> Tensor:
    """Linear maps of one input: [N, C] -> [N, the sum of their outputs]."""
    products = [linear(x, weight, bias) for weight, bias in parts]
    return products[0] if len(products) == 1 else torch.cat(products, dim=-1)


def _projection(modules: Sequence[nn.Linear], joins: bool) -> _Projection:
    """Weights and biases, joined into one of each or not."""
    if not joins:
        return [(module.weight, module.bias) for module in modules]
    biases = [module.bias for module in modules]
    weight = _join([module.weight for module in modules])
    return [(weight, None if biases[0] is None else _join(biases))]


def _join(parameters: Sequence[Tensor]) -> Tensor:
    """One tensor of all their rows; they become views of it, unless they are already."""
    first = parameters[0]
    storage = first.untyped_storage().data_ptr()
    address = first.data_ptr()
    for parameter in parameters:
        lies_next = parameter.data_ptr() == address and parameter.is_contiguous()
        if not lies_next or parameter.untyped_storage().data_ptr() != storage:
            break
        address += parameter.nbytes
    else:
        shape = (sum(len(parameter) for parameter in parameters), *first.shape[1:])
        return first.detach().as_strided(shape, first.stride())
    joined = torch.cat([parameter.detach() for parameter in parameters])
    start = 0
    for parameter in parameters:
        parameter.data = joined[start : start + len(parameter)]
        start += len(parameter)
    return joined


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`RMSNorm` over the last dimension, rounding where the module does."""
    wide = x.float()
    scale = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
    return (wide * scale).to(x.dtype).mul_(weight)

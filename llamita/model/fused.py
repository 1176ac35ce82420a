"""The layers of a model for reading alone: the same formulas as its modules, in fewer steps.

Projections of the same input are joined, so that a layer is four matrix products; the residual
stream and what only one step needs are changed in place; rows of all sequences lie one below the
other, [N, C], without padding; and the last layer goes on with those rows alone whose logits are
wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llamita.model.norm import RMSNorm
from llamita.model.precision import linear
from llamita.model.transformer import DecoderLayer, Transformer


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
    """

    def __init__(self, model: Transformer) -> None:
        self._model = model
        self._parameters = [
            (module._parameters, name)
            for module in model.modules()
            for name in module._parameters
            if module._parameters[name] is not None
        ]
        self._addresses: list[int] = []
        self._layers: list[_Layer] = []
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

    def logits(self, token_ids: Tensor, plan: CachePlan, wanted: Tensor | None = None) -> Tensor:
        """Read token_ids [N]; logits [M, V] after the `wanted` [M] of them, or after all.

        Runs in inference mode.
        """
        decoder = self._model.model
        x = F.embedding(token_ids, decoder.embed_tokens.weight)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            x = layer(x, plan, wanted if index == last else None)
        x = rms_norm(x, decoder.norm.weight, decoder.norm.eps)
        return linear(x, self._model.lm_head.weight)

    def _addresses_now(self) -> list[int]:
        weights = (holder[name] for holder, name in self._parameters)
        return [0 if weight is None else weight.data_ptr() for weight in weights]


class _Layer:
    """One `DecoderLayer`."""

    def __init__(self, layer: DecoderLayer, joins: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._index = attention.layer
        self._head_dim = attention.head_dim
        self._queries = attention.q_proj.out_features // attention.head_dim
        self._keys = attention.k_proj.out_features // attention.head_dim
        self._input_norm = layer.input_layernorm
        self._mlp_norm = layer.post_attention_layernorm
        self._head_norms = [
            norm for norm in (attention.q_norm, attention.k_norm) if isinstance(norm, RMSNorm)
        ]
        self._qkv = _Projection((attention.q_proj, attention.k_proj, attention.v_proj), joins)
        self._output = _Projection((attention.o_proj,), joins)
        self._gate_up = _Projection((mlp.gate_proj, mlp.up_proj), joins)
        self._down = _Projection((mlp.down_proj,), joins)

    def __call__(self, x: Tensor, plan: CachePlan, wanted: Tensor | None) -> Tensor:
        """[N, C] -> [N, C] in place, or [M, C] for the rows `wanted` [M]."""
        qkv = self._qkv(rms_norm(x, self._input_norm.weight, self._input_norm.eps))
        qkv = qkv.view(x.shape[0], -1, self._head_dim)
        qk, v = qkv[:, : -self._keys], qkv[:, -self._keys :]
        if self._head_norms:
            heads = (qk[:, : self._queries], qk[:, self._queries :])
            norms = zip(heads, self._head_norms, strict=True)
            qk = torch.cat([rms_norm(part, norm.weight, norm.eps) for part, norm in norms], dim=1)
        y = plan.attend(self._index, qk, v)
        if wanted is not None:
            x, y = x[wanted], y[wanted]
        x += self._output(y)
        gate_up = self._gate_up(rms_norm(x, self._mlp_norm.weight, self._mlp_norm.eps))
        gate, up = gate_up.chunk(2, dim=-1)
        x += self._down(F.silu(gate, inplace=True).mul_(up))
        return x


class _Projection:
    """Linear modules of one input as one: [N, C] -> [N, the sum of their outputs]."""

    def __init__(self, modules: Sequence[nn.Linear], joins: bool) -> None:
        biases = [module.bias for module in modules]
        self._parts: list[tuple[Tensor, Tensor | None]]
        self._parts = [(module.weight, module.bias) for module in modules]
        if joins or len(modules) == 1:
            bias = None if biases[0] is None else _join(biases)
            self._parts = [(_join([module.weight for module in modules]), bias)]

    def __call__(self, x: Tensor) -> Tensor:
        parts = [linear(x, weight, bias) for weight, bias in self._parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


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

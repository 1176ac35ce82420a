"""The layers of a model for reading alone: the same formulas as its modules, in fewer steps.

Projections of the same input are joined, so that a layer is four matrix products; rows of all
sequences lie one below the other, [N, C], without padding; and the last layer goes on with those
rows alone whose logits are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor, nn

from llamita.config import ModelConfig
from llamita.errors import GenerationError
from llamita.model.decode_plan import OneRead
from llamita.model.norm import RMSNorm
from llamita.model.steps import Projection, Steps, after, before, last_logits, whole_layer
from llamita.model.transformer import DecoderLayer, Transformer


class CachePlan(Protocol):
    """Which slots of a cache one pass writes and reads: worked out once, shared by every layer."""

    def attend(self, layer: int, qkv: Tensor) -> Tensor:
        """Attention of the pass's tokens: qkv [N, H + K + K, D] gives [N, H × D].

        Queries and keys come unrotated; their memory may be written to.
        """

    def in_one_read(self, dtype: torch.dtype) -> OneRead | None:
        """The pass as tensors alone, for queries of `dtype`, where it can be given so."""

    def held(self, layer: int) -> Tensor:
        """What the cache holds of one layer: [2, slots, K, size, D]."""


class FusedDecoder:
    """A `Transformer` for reading through a cache.

    The joined projections are the model's own weights: its parameters become views of them, so
    nothing is held twice, and what changes a parameter in place (an optimizer's step, loading a
    state dict) changes them. `torch.save` of one such parameter therefore writes all that it is
    joined with, unless it is cloned first; a whole state dict takes no more than before. `refresh`
    notices parameters and modules that were replaced. A model in training mode is left as it is.

    A projection or head that is no plain `nn.Linear` (an adapter around one, quantized weights) is
    called as the module it is. Forward hooks of the other modules are not called.

    compile: compute through `torch.compile`: whole layers, where a pass can be given as tensors,
    else what lies between attentions. Compiled code is kept on disk, by PyTorch. Without a working
    compiler one warning is logged and nothing else differs.
    """

    def __init__(self, model: Transformer, *, compile: bool = False) -> None:
        self._model = model
        self._steps = Steps(compile)
        self._places: list[tuple[dict[str, nn.Module | None], str]] = []
        self._modules: list[nn.Module | None] = []
        self._parameters: list[tuple[dict[str, nn.Parameter | None], str]] = []
        self._addresses: list[int] = []
        self._layers: list[_Layer] = []
        self._head: Projection = []
        self._counted: list[tuple[dict[str, Any], str]] = []
        self.refresh()

    @property
    def versions(self) -> tuple[int, ...]:
        """Changes with every weight that is replaced, or written in place where autograd sees it.

        Writing through `.data` escapes it, and writing to inference tensors.
        """
        self.refresh()
        return (*self._addresses, *[holder[name]._version for holder, name in self._counted])

    def refresh(self) -> None:
        """Join anew what was replaced since the last call (by `to`, or assigning `data`)."""
        modules = [holder.get(name) for holder, name in self._places]
        are_known = self._addresses and modules == self._modules
        if are_known and self._addresses_now() == self._addresses:
            return
        self._addresses = []  # until all is joined, should it fail
        self._watch()
        model, joins = self._model, not self._model.training
        self._layers = [_Layer(layer, model.config, joins) for layer in model.model.layers]
        self._head = _projection([model.lm_head], joins)
        self._norm = _norm(model.model.norm)
        self._steps.prepare(self._norm[0])
        self._addresses = self._addresses_now()

    def logits(self, token_ids: Tensor, plan: CachePlan, wanted: Tensor | None = None) -> Tensor:
        """Read token_ids [N]; logits [M, V] after the `wanted` [M] of them, or after all.

        Runs in inference mode.
        """
        x = self._model.model.embed_tokens(token_ids)
        read = plan.in_one_read(x.dtype) if self._steps.are_compiled else None
        if read is not None:
            for layer in self._layers:
                x = layer.whole(x, plan, read, self._steps)
            x = x if wanted is None else x[wanted]
        else:
            last = len(self._layers) - 1
            for index, layer in enumerate(self._layers):
                x = layer(x, plan, wanted if index == last else None, self._steps)
        logits: Tensor = self._steps.run(last_logits, x, self._norm, self._head)
        return logits

    def _watch(self) -> None:
        """Take note of where the model's modules and parameters are held."""
        modules = list(self._model.modules())
        self._places = [(module._modules, name) for module in modules for name in module._modules]
        self._modules = [holder[name] for holder, name in self._places]
        self._parameters = [
            (module._parameters, name) for module in modules for name in module._parameters
        ]
        # PyTorch does not count how often tensors made in inference mode are written.
        weights = [(holder, name, holder[name]) for holder, name in self._parameters]
        self._counted = [(h, n) for h, n, w in weights if w is not None and not w.is_inference()]

    def _addresses_now(self) -> list[int]:
        weights = [holder.get(name) for holder, name in self._parameters]
        return [
            # What only looks like a tensor (a quantized weight) has no address of its own.
            weight.data_ptr() if type(weight) is nn.Parameter else id(weight)
            for weight in weights
        ]


class _Layer:
    """One `DecoderLayer`: what lies before attention, attention, and what lies after; or whole."""

    def __init__(self, layer: nn.Module, config: ModelConfig, joins: bool) -> None:
        if type(layer) is not DecoderLayer:
            raise _unknown(layer)
        attention, mlp = layer.self_attn, layer.mlp
        self._index = attention.layer
        self._qkv = _projection([attention.q_proj, attention.k_proj, attention.v_proj], joins)
        self._output = _projection([attention.o_proj], joins)
        self._gate_up = _projection([mlp.gate_proj, mlp.up_proj], joins)
        self._down = _projection([mlp.down_proj], joins)
        self._input_norm = _norm(layer.input_layernorm)
        self._mlp_norm = _norm(layer.post_attention_layernorm)
        norms = (attention.q_norm, attention.k_norm)
        self._head_norms = [_norm(norm) for norm in norms if type(norm) is not nn.Identity]
        keys = config.num_key_value_heads
        self._heads = [config.num_attention_heads, keys, keys]

    def __call__(self, x: Tensor, plan: CachePlan, wanted: Tensor | None, steps: Steps) -> Tensor:
        """[N, C] -> [N, C], or [M, C] for the rows `wanted` [M]."""
        qkv: Tensor = steps.run(
            before, x, self._input_norm, self._qkv, self._head_norms, self._heads
        )
        y = plan.attend(self._index, qkv)
        if wanted is not None:
            x, y = x[wanted], y[wanted]
        rest = (self._output, self._mlp_norm, self._gate_up, self._down)
        output: Tensor = steps.run(after, x, y, *rest)
        return output

    def whole(self, x: Tensor, plan: CachePlan, read: OneRead, steps: Steps) -> Tensor:
        """As calling it, in one step."""
        given = (self._heads, self._input_norm, self._qkv, self._head_norms, self._output)
        rest = (self._mlp_norm, self._gate_up, self._down)
        held = plan.held(self._index)
        output: Tensor = steps.run(whole_layer, x, read, held, *given, *rest)
        return output


def _norm(module: nn.Module) -> tuple[Tensor, Tensor]:
    """The weight [C] and epsilon [1] of an `RMSNorm`, as `rms_norm` takes them."""
    if type(module) is not RMSNorm:
        raise _unknown(module)
    return module.weight, torch.tensor([module.eps], device=module.weight.device)


def _unknown(module: nn.Module) -> GenerationError:
    return GenerationError(
        f"a module of the model was replaced by {type(module).__name__}, which cannot be read.",
        hint="Projections, the embedding and the head may be replaced; other modules may not.",
    )


def _projection(modules: Sequence[nn.Module], joins: bool) -> Projection:
    """Weights and biases, joined into one of each or not; or the modules, if they are more."""
    plain = [module for module in modules if _is_plain(module)]
    if len(plain) < len(modules):
        return modules
    biases = [module.bias for module in plain]
    kinds = {(module.weight.dtype, module.bias is None) for module in plain}
    if not joins or len(kinds) > 1:
        return [(module.weight, module.bias) for module in plain]
    weight = _join([module.weight for module in plain])
    return [(weight, None if biases[0] is None else _join(biases))]


def _is_plain(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a module is `nn.Linear` and its weight a matrix of numbers, as it was made."""
    return type(module) is nn.Linear and type(module.weight) is nn.Parameter


def _join(parameters: Sequence[Tensor]) -> Tensor:
    """One tensor of all their rows; they become views of it, unless they are already."""
    # The model may be trained again, unless it was made in inference mode.
    with torch.inference_mode(parameters[0].is_inference()), torch.no_grad():
        first, *others = parameters
        end = first.data_ptr() + first.nbytes
        lie_next = first.is_contiguous()
        for other in others:
            same = other.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
            lie_next = lie_next and same and other.data_ptr() == end and other.is_contiguous()
            end += other.nbytes
        if lie_next:
            shape = (sum(len(parameter) for parameter in parameters), *first.shape[1:])
            return first.detach().as_strided(shape, first.stride())
        joined = torch.cat([parameter.detach() for parameter in parameters])
        start = 0
        for parameter in parameters:
            parameter.data = joined[start : start + len(parameter)]
            start += len(parameter)
        return joined

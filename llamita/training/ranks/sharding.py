"""Models whose weights lie in shards over the ranks of a run (FSDP2, arXiv:2304.11277).

Each rank keeps a part of every parameter, of its gradient and of its optimizer state. A layer is
gathered when it is computed and given up again; the tables stay whole from the forward pass to the
end of the backward one, as the loss reads the head.

In bfloat16 layers are gathered rounded, so that there is nothing left to cast: copies that autocast
makes would be kept for the backward pass, together a whole model. What lies in shards is float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from llamita.model import Transformer
from llamita.training.machine.precision import DTYPES
from llamita.training.ranks.world import World


def shard(model: Transformer, device: str, world: World, precision: str = "float32") -> None:
    """Spread the parameters over the ranks, in place; those on the meta device stay there.

    Afterwards they are DTensors, cut along their first dimension as `torch.chunk` does: where there
    are fewer rows than ranks, some parts are empty. Gradients are means over the ranks, summed in
    float32.

    precision: that of `autocast` around the layers, in which they are gathered. The residual stream
    between them stays float32, and so do the tables and the last norm; the norms of layers, which
    are gathered with the rest, multiply by rounded weights.
    """
    mesh = init_device_mesh(device, (world.size,))
    of_layers = MixedPrecisionPolicy(
        param_dtype=DTYPES[precision], reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=of_layers)
    fully_shard(model, mesh=mesh)
    for module in (*model.model.layers, model):
        assert isinstance(module, FSDPModule)  # fully_shard gave it this class
        module.set_force_sum_reduction_for_comms(True)  # gloo has no mean
    register_fsdp_forward_method(model, "hidden_states")


def is_sharded(model: nn.Module) -> bool:
    """Whether each rank has a part of the model alone."""
    return isinstance(model, FSDPModule)


def give_up_whole(model: nn.Module) -> None:
    """Let go of what a forward pass without a backward one left whole, of the root's parameters."""
    if isinstance(model, FSDPModule):
        model.reshard()


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, gathered from the ranks; all of them must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def spread_like(values: Tensor, sharded: Tensor) -> Tensor:
    """Whole values that all ranks have, as a tensor that is spread as `sharded` is."""
    if not isinstance(sharded, DTensor):
        return values
    return distribute_tensor(values, sharded.device_mesh, sharded.placements, src_data_rank=None)


def compile_layer(layer: nn.Module) -> Callable[[], None]:
    """Compile what a layer computes; a function that undoes it.

    Of a sharded one the function alone: gathering its weights before is no work for a compiler.
    """
    if isinstance(layer, FSDPModule):
        plain = layer.forward
        layer.forward = torch.compile(plain, dynamic=False)

        def undo() -> None:
            layer.forward = plain

        return undo
    layer.compile(dynamic=False)

    def undo_compile() -> None:
        layer._compiled_call_impl = None  # there is no public way back

    return undo_compile

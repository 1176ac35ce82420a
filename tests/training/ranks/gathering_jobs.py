"""What ranks do in the tests of whole tensors out of parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

from llamita.formats.stored import StoredTensor
from llamita.training.ranks import gathering
from llamita.training.ranks.gathering import write_whole
from llamita.training.ranks.world import World


def gather_pieces() -> dict[str, Tensor] | None:
    """Tensors of all kinds put together on rank 0, in another order than that of their names."""
    with World.join() as world:
        mesh = init_device_mesh("cpu", (world.size,))
        tensors = {
            name: distribute_tensor(values, mesh, [Shard(dim)], src_data_rank=None)
            for name, (values, dim) in pieces().items()
        }
        tensors["plain"] = torch.arange(3)
        found: dict[str, Tensor] = {}

        def write(whole: Mapping[str, StoredTensor]) -> None:
            for name in reversed(whole):
                found[name] = whole[name].read()

        write_whole(world, tensors, write)
        return found if world.is_first else None


def pieces() -> dict[str, tuple[Tensor, int]]:
    """Whole tensors, and the dimension along which each is divided."""
    draw = torch.Generator().manual_seed(0)
    return {
        "rows": (torch.randn(61, 3, generator=draw), 0),
        "fewer than ranks": (torch.randn(2, 5, generator=draw), 0),
        "columns": (torch.randn(3, 8, generator=draw), 1),
        "bfloat16": (torch.randn(10, generator=draw).bfloat16(), 0),
    }


def fail_amid_gathering() -> str:
    """What each rank is told where rank 0 gives up after the first tensor."""
    with World.join() as world:
        mesh = init_device_mesh("cpu", (world.size,))
        tensors = {
            name: distribute_tensor(values, mesh, [Shard(dim)], src_data_rank=None)
            for name, (values, dim) in pieces().items()
        }

        def write(whole: Mapping[str, StoredTensor]) -> None:
            next(iter(whole.values())).read()
            raise ValueError("no more")

        try:
            with world.agreed():
                write_whole(world, tensors, write)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "nothing"


def keep_back_a_part(culprit: int) -> list[str]:
    """What each rank is told where one cannot give its part of a tensor."""
    with World.join() as world:
        mesh = init_device_mesh("cpu", (world.size,))
        values = torch.arange(12.0).view(6, 2)
        tensor = distribute_tensor(values, mesh, [Shard(0)], src_data_rank=None)
        if world.rank == culprit:
            gathering.own_part = lambda tensor: _Stuck(1)
        told = []
        try:
            with world.agreed():
                write_whole(world, {"rows": tensor}, lambda whole: whole["rows"].read())
        except Exception as error:
            told.append(str(error))
        return [*told, *map(str, world.gather(world.rank))]


class _Stuck(Tensor):
    """A tensor that cannot be brought to main memory."""

    def to(self, *target: Any, **more: Any) -> Tensor:
        raise RuntimeError("no room")

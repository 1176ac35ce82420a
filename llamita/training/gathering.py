"""Whole tensors out of parts: how rank 0 writes a model of which no rank holds all.

Rank 0 writes, and asks for one tensor after the other in the order in which it needs them; the
others hand in their parts. So there is never more than one whole tensor in memory, and where
rank 0 gives up in the middle, nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from llamita.formats.stored import StoredTensor
from llamita.model.sharded import own_box, own_part
from llamita.training.world import World

Boxes = list[tuple[slice, ...] | None]
_NO_MORE = -1


def write_whole(
    world: World,
    tensors: Mapping[str, Tensor],
    write: Callable[[Mapping[str, StoredTensor]], None],
) -> None:
    """Call `write` on rank 0 with the whole tensors, each gathered when it is read.

    All ranks call this together, with the same names in the same order. What `write` raises comes
    out on rank 0 alone.
    """
    boxes = {name: own_box(tensor) for name, tensor in tensors.items()}
    if all(box is None for box in boxes.values()):
        if world.is_first:
            write({name: StoredTensor.of(tensor) for name, tensor in tensors.items()})
        return
    everyone = world.gather(boxes)
    names = list(tensors)
    if not world.is_first:
        while (index := _order(world)) != _NO_MORE:
            _hand_in(world, tensors[names[index]])
        return
    try:
        write(
            {
                name: StoredTensor.of(tensor)
                if boxes[name] is None
                else _to_gather(world, index, tensor, [table[name] for table in everyone])
                for index, (name, tensor) in enumerate(tensors.items())
            }
        )
    finally:
        _order(world, _NO_MORE)


def _to_gather(world: World, index: int, tensor: Tensor, boxes: Boxes) -> StoredTensor:
    size = tensor.numel() * tensor.element_size()
    kind = str(tensor.dtype).removeprefix("torch.")
    read = partial(_gather, world, index, tensor, boxes)
    return StoredTensor(tensor.shape, tensor.dtype, read, kind, size)


def _gather(world: World, index: int, tensor: Tensor, boxes: Boxes) -> Tensor:
    """On rank 0: ask the others for their parts of a tensor, and put them together."""
    _order(world, index)
    whole = torch.empty(tensor.shape, dtype=tensor.dtype)
    for rank, box in enumerate(boxes):
        assert box is not None  # a tensor is in parts on every rank or on none
        place = whole[box]
        if rank == 0:
            place.copy_(own_part(tensor))
        elif place.numel():
            part = torch.empty(place.shape, dtype=tensor.dtype)
            dist.recv(part, rank, world.group)
            place.copy_(part)
    return whole


def _hand_in(world: World, tensor: Tensor) -> None:
    part = own_part(tensor).to("cpu").contiguous()
    if part.numel():
        dist.send(part, 0, world.group)


def _order(world: World, index: int = _NO_MORE) -> int:
    """Which tensor is wanted next: what rank 0 says."""
    wanted = torch.tensor(index)
    dist.broadcast(wanted, 0, world.group)
    return int(wanted)

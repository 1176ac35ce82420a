"""Whole tensors out of parts: how rank 0 writes a model of which no rank holds all.

Rank 0 writes, and asks for one tensor after the other in the order in which it needs them; the
others hand in their parts. So there is never more than one whole tensor in memory, and where
rank 0 gives up in the middle, nobody waits. A rank that cannot hand in its part says so instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from llamita.errors import TrainingError
from llamita.formats.stored import StoredTensor
from llamita.model.sharded import own_box, own_part
from llamita.training.ranks.world import World

Boxes = list[tuple[slice, ...] | None]
_NO_MORE = -1


def write_whole(
    world: World,
    tensors: Mapping[str, Tensor],
    write: Callable[[Mapping[str, StoredTensor]], None],
) -> None:
    """Call `write` on rank 0 with the whole tensors, each gathered when it is read.

    All ranks call this together, with the same names in the same order. What `write` raises comes
    out on rank 0 alone, what keeps a part back on its rank as well.
    """
    boxes = {name: own_box(tensor) for name, tensor in tensors.items()}
    if all(box is None for box in boxes.values()):
        if world.is_first:
            write({name: StoredTensor.of(tensor) for name, tensor in tensors.items()})
        return
    everyone = world.gather(boxes)
    names = list(tensors)
    if not world.is_first:
        failure = None
        while (index := _order(world)) != _NO_MORE:
            failure = _hand_in(world, tensors[names[index]]) or failure
        if failure is not None:
            raise failure
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
    """On rank 0: ask the others for their parts of a tensor, and put them together.

    From the order on nothing may fail before all parts are here: their ranks wait until then.

    Raises:
        TrainingError: a rank has none to give.
    """
    whole = torch.empty(tensor.shape, dtype=tensor.dtype)
    assert None not in boxes  # a tensor is in parts on every rank or on none
    first, *places = [whole[box] for box in boxes]
    first.copy_(own_part(tensor))
    room = torch.empty(max((place.numel() for place in places), default=0), dtype=tensor.dtype)
    _order(world, index)
    without = []
    for rank, place in enumerate(places, start=1):
        if not place.numel():
            continue
        if _is_there(world, rank):
            part = room[: place.numel()]
            dist.recv(part, rank, world.group)
            place.copy_(part.view(place.shape))
        else:
            without.append(rank)
    if without:
        raise TrainingError(f"rank {without[0]} could not give its part of the model.")
    return whole


def _hand_in(world: World, tensor: Tensor) -> Exception | None:
    """Give rank 0 this rank's part of a tensor; what there was in the way of it."""
    own = own_part(tensor)
    if not own.numel():
        return None
    try:
        part = own.to("cpu").contiguous()
    except Exception as error:
        dist.send(torch.tensor(False), 0, world.group)
        return error
    dist.send(torch.tensor(True), 0, world.group)
    dist.send(part, 0, world.group)
    return None


def _is_there(world: World, rank: int) -> bool:
    answer = torch.tensor(False)
    dist.recv(answer, rank, world.group)
    return bool(answer)


def _order(world: World, index: int = _NO_MORE) -> int:
    """Which tensor is wanted next: what rank 0 says."""
    wanted = torch.tensor(index)
    dist.broadcast(wanted, 0, world.group)
    return int(wanted)

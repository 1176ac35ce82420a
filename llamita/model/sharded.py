"""Tensors of which each rank holds a part: PyTorch's DTensors, as FSDP2 makes parameters.

What is whole elsewhere is put into them, and what they hold is told, without any rank ever having
more than one tensor whole.
"""

from __future__ import annotations

from torch import Tensor


def put(tensor: Tensor, whole: Tensor) -> None:
    """Copy `whole`, of the shape of `tensor`, into it, or the part of it that this rank holds."""
    box = own_box(tensor)
    target = tensor if box is None else own_part(tensor)
    target.copy_(whole if box is None else whole[box])


def own_box(tensor: Tensor) -> tuple[slice, ...] | None:
    """Where in the whole tensor this rank's part lies; None where it holds all of it."""
    # `data`, since a parameter says that it is one. Plain ones import nothing.
    if type(tensor.data) is Tensor:
        return None
    from torch.distributed.tensor import DTensor

    if not isinstance(tensor, DTensor):
        return None
    # How torch.distributed.checkpoint asks a tensor for it.
    (chunk,) = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]
    return tuple(
        slice(start, start + size) for start, size in zip(chunk.offsets, chunk.sizes, strict=True)
    )


def own_part(tensor: Tensor) -> Tensor:
    """The numbers that this rank holds, in the tensor's own memory; all of them if it is whole."""
    local: Tensor = tensor.detach()
    if own_box(tensor) is not None:
        local = local.to_local()  # type: ignore[attr-defined]
    return local

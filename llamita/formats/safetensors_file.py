"""`model.safetensors`, whole or sharded behind an index: names to memory-mapped tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from llamita.errors import CheckpointError
from llamita.files import read_json, write_json
from llamita.formats.safetensors_header import check_header
from llamita.formats.stored import StoredTensor

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}
LARGEST_SHARD = 5_000_000_000
"""Bytes of tensors in one file; more are split, as HuggingFace's own writer does."""


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of one file, memory-mapped.

    Raises:
        CheckpointError: the file cannot be opened, or is damaged.
    """
    check_header(path)
    try:
        with safe_open(path, framework="pt") as handle:
            return {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, RuntimeError, ValueError, KeyError) as cause:
        raise CheckpointError(
            f"cannot read {path} as safetensors: {cause}.",
            hint="The file is damaged or not whole: copy or download it again.",
        ) from cause


def read_sharded(index_path: Path, read_shard: Any = read_safetensors) -> dict[str, Tensor]:
    """The tensors of all shards that an index names.

    Raises:
        CheckpointError: the index or a shard is missing, damaged, or they disagree.
    """
    index = read_json(index_path, CheckpointError)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index_path} has no weight_map.")
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(map(str, weight_map.values()))):
        if Path(shard).name != shard:
            raise CheckpointError(
                f"{index_path} names the shard {shard!r}, which is not beside it."
            )
        path = index_path.parent / shard
        if not path.is_file():
            raise CheckpointError(f"{index_path} names {shard}, which is not there.")
        for name, tensor in read_shard(path).items():
            if name in tensors or weight_map.get(name, shard) != shard:
                raise CheckpointError(f"{path} holds {name}, which belongs to another shard.")
            tensors[name] = tensor
    absent = [name for name in weight_map if name not in tensors]
    if absent:
        raise CheckpointError(
            f"{index_path} names {absent[0]} in {weight_map[absent[0]]}, but it is not in there."
        )
    return tensors


def write_safetensors(
    tensors: Mapping[str, StoredTensor],
    directory: Path,
    largest_shard: int | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write `model.safetensors` into `directory`, or numbered shards and their index.

    The library's own writer wants all tensors of a file at once; here each is read, written and
    let go.

    Args:
        largest_shard: bytes of tensors in one file; left out, `LARGEST_SHARD`.
        dtype: of the numbers on disk; left out, each tensor's own.
    """
    sizes = {name: _size(tensor, dtype or tensor.dtype) for name, tensor in tensors.items()}
    shards: list[dict[str, StoredTensor]] = [{}]
    limit = largest_shard or LARGEST_SHARD
    room = limit
    for name, tensor in tensors.items():
        if sizes[name] > room and shards[-1]:
            shards.append({})
            room = limit
        shards[-1][name] = tensor
        room -= sizes[name]
    if len(shards) == 1:
        write_safetensors_file(shards[0], directory / SINGLE, dtype)
        return
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors_file(shard, directory / file_name, dtype)
        weight_map.update(dict.fromkeys(shard, file_name))
    total = sum(sizes.values())
    write_json(directory / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})


def write_safetensors_file(
    tensors: Mapping[str, StoredTensor], path: Path, dtype: torch.dtype | None = None
) -> None:
    """Write one file of tensors, each read, written and let go; dtype as above."""
    # Wider types first, so that every tensor begins at a multiple of its own width.
    ordered = sorted(tensors.items(), key=lambda item: -(dtype or item[1].dtype).itemsize)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in ordered:
        stored = dtype or tensor.dtype
        start, end = end, end + _size(tensor, stored)
        header[name] = {
            "dtype": _DTYPE_NAMES[stored],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as handle:
        handle.write(len(text).to_bytes(8, "little"))
        handle.write(text)
        for _, tensor in ordered:
            numbers = tensor.read().detach().to("cpu", dtype or tensor.dtype).contiguous()
            # Not `tofile`: it does not say why the system wrote less.
            handle.write(numbers.reshape(-1).view(torch.uint8).numpy().data)


def _size(tensor: StoredTensor, dtype: torch.dtype) -> int:
    return tensor.numel() * dtype.itemsize

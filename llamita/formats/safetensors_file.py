"""`model.safetensors`, whole or sharded behind an index: names to memory-mapped tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from llamita.errors import CheckpointError
from llamita.files import give_usual_mode, read_json, write_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
LARGEST_SHARD = 5_000_000_000
"""Bytes of tensors in one file; more are split, as HuggingFace's own writer does."""


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of one file, memory-mapped.

    Raises:
        CheckpointError: the file cannot be opened, or is damaged.
    """
    try:
        path.open("rb").close()
    except OSError as cause:
        raise CheckpointError(f"cannot read {path}: {cause.strerror}.") from cause
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


def write_safetensors(tensors: Mapping[str, Tensor], directory: Path, largest_shard: int) -> None:
    """Write `model.safetensors` into `directory`, or numbered shards and their index."""
    shards: list[dict[str, Tensor]] = [{}]
    room = largest_shard
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if size > room and shards[-1]:
            shards.append({})
            room = largest_shard
        shards[-1][name] = tensor
        room -= size
    if len(shards) == 1:
        _write(shards[0], directory / SINGLE)
        return
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write(shard, directory / file_name)
        weight_map.update(dict.fromkeys(shard, file_name))
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    write_json(directory / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})


def _write(tensors: dict[str, Tensor], path: Path) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, path, metadata={"format": "pt"})
    give_usual_mode(path)  # the library makes it readable for its owner alone

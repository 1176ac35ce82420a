"""Meta's model-parallel shards: which tensors are split, along which dimension, and which not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch

from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError
from llamita.formats.key_map import listing
from llamita.formats.meta_params import PARAMS, is_llama3
from llamita.formats.stored import StoredTensor, concatenate
from llamita.formats.torch_checkpoint import stored_tensors
from llamita.formats.torch_file import read_torch_state_dict

EMBEDDING, OUTPUT, ROTARY = "tok_embeddings.weight", "output.weight", "rope.freqs"
_SHARD = re.compile(r"consolidated\.([0-9]{2,3})\.pth")
_SPLIT_BY_ROWS = (".wq.weight", ".wk.weight", ".wv.weight", ".w1.weight", ".w3.weight", OUTPUT)
_SPLIT_BY_COLUMNS = (".wo.weight", ".w2.weight")


def is_meta_directory(directory: Path) -> bool:
    """Whether `directory` holds Meta's shards."""
    return any(_SHARD.fullmatch(path.name) for path in directory.glob("consolidated.*"))


def open_shards(directory: Path) -> list[dict[str, StoredTensor]]:
    """The shards in order, all with the same names; none missing, none too many.

    Raises:
        CheckpointError: something is missing, damaged, or too many.
    """
    if not (directory / PARAMS).is_file():
        raise CheckpointError(
            f"{directory} has Meta's weights but no {PARAMS}.",
            hint="It comes with the weights; copy it beside them.",
        )
    found = {
        int(match[1]): path
        for path in directory.iterdir()
        if (match := _SHARD.fullmatch(path.name)) is not None
    }
    if not found:
        raise CheckpointError(f"{directory} has a {PARAMS} but no consolidated.00.pth.")
    _check_numbers(found, max(found) + 1, directory)
    shards = [
        stored_tensors(read_torch_state_dict(path), path) for _, path in sorted(found.items())
    ]
    for number, shard in enumerate(shards):
        other = sorted(shard.keys() ^ shards[0].keys())
        if other:
            raise CheckpointError(
                f"{found[0].name} and {found[number].name} in {directory} hold other tensors: "
                f"{listing(other)} is in one alone."
            )
    _check_count(shards, found, directory)
    return shards


def join_shards(shards: list[dict[str, StoredTensor]], directory: Path) -> dict[str, StoredTensor]:
    """Whole tensors of what the ranks hold, joined when they are read.

    Raises:
        CheckpointError: the shards do not fit together.
    """
    norm = shards[0].get("norm.weight")
    width = norm.numel() if norm is not None else 0
    return {
        name: _join(name, [shard[name] for shard in shards], width, directory) for name in shards[0]
    }


def part_of(
    name: str, tensor: StoredTensor, rank: int, shards: int, config: ModelConfig
) -> StoredTensor:
    """What one model-parallel rank has of a tensor."""
    if shards == 1 or len(tensor.shape) != 2:
        return tensor
    by_columns = name.endswith(_SPLIT_BY_COLUMNS)
    if name == EMBEDDING:
        by_columns = not is_llama3(config)
    axis = 1 if by_columns else 0
    length = tensor.shape[axis] // shards
    shape = list(tensor.shape)
    shape[axis] = length
    return tensor.then(lambda values: values.narrow(axis, rank * length, length), shape)


def check_split(config: ModelConfig, shards: int) -> None:
    """Raise ConfigError where the model has no `shards` equal parts."""
    if shards < 1:
        raise ConfigError(f"shards is {shards}; it must be 1 or more.")
    for name in (
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
        "hidden_size",
    ):
        if getattr(config, name) % shards:
            raise ConfigError(f"{name} is {getattr(config, name)}; it has no {shards} equal parts.")


def _check_numbers(found: Mapping[int, Path], count: int, directory: Path) -> None:
    missing = [f"consolidated.{n:02d}.pth" for n in range(count) if n not in found]
    if missing:
        raise CheckpointError(
            f"{directory} lacks {listing(missing)} of {count} shards.",
            hint="Copy or download the missing ones.",
        )


def _check_count(
    shards: list[dict[str, StoredTensor]], found: Mapping[int, Path], directory: Path
) -> None:
    """Norms are whole in each shard and queries are split: together they tell the count."""
    width = shards[0].get("norm.weight")
    queries = shards[0].get("layers.0.attention.wq.weight")
    if width is None or queries is None or len(width.shape) != 1 or len(queries.shape) != 2:
        return  # what is missing is told later, by name
    rows = queries.shape[0]
    count = width.shape[0] // rows if rows and width.shape[0] % rows == 0 else 0
    if count == len(shards) or not count:
        return
    _check_numbers(found, count, directory)
    raise CheckpointError(
        f"{directory} holds {len(shards)} shards, but each is one of {count}; too many are "
        f"{listing([path.name for number, path in sorted(found.items()) if number >= count])}.",
        hint="Keep the shards of one model in a folder.",
    )


def _join(name: str, parts: list[StoredTensor], width: int, directory: Path) -> StoredTensor:
    """One tensor of its shards: joined where it is split, the same in each where it is not."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.shape != first.shape or part.dtype != first.dtype for part in parts):
        raise CheckpointError(f"{name} has other shapes or types in other shards of {directory}.")
    if len(first.shape) == 2:
        if name.endswith(_SPLIT_BY_ROWS):
            return concatenate(parts, 0)
        if name.endswith(_SPLIT_BY_COLUMNS):
            return concatenate(parts, 1)
        if name == EMBEDDING:
            return concatenate(parts, _embedding_axis(parts, width, directory))
    if name == ROTARY:
        return first
    values = first.read()
    if not all(torch.equal(values, part.read()) for part in parts[1:]):
        raise CheckpointError(
            f"{name} should be the same in every shard of {directory}, but is not."
        )
    return first


def _embedding_axis(parts: list[StoredTensor], width: int, directory: Path) -> int:
    """Llama 1 and 2 split the embedding by columns, Llama 3 by rows."""
    columns = parts[0].shape[1]
    if columns == width:
        return 0
    if columns * len(parts) == width:
        return 1
    raise CheckpointError(
        f"{EMBEDDING} has {columns} columns in each of {len(parts)} shards of {directory}; "
        f"the model is {width} wide."
    )

"""Meta's own Llama folders: `consolidated.NN.pth`, `params.json`, `tokenizer.model`.

Model-parallel shards join along dimensions that differ from tensor to tensor. Rotary pairs are
neighbours here, so query and key rows are permuted, each by its own count of heads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError
from llamita.files import write_json
from llamita.formats.checkpoint import EMBEDDING, HEAD, Checkpoint, match_tensors
from llamita.formats.key_map import (
    InterleavedHeads,
    Rule,
    listing,
    map_to_foreign,
    map_to_native,
)
from llamita.formats.meta_params import (
    PARAMS,
    UNSAID,
    check_params,
    is_llama3,
    read_params,
    write_params,
)
from llamita.formats.stored import StoredTensor, concatenate
from llamita.formats.torch_checkpoint import shape_of, stored_tensors
from llamita.formats.torch_file import read_torch_state_dict
from llamita.formats.torch_write import cast_all, write_torch_file

_NATIVE, _LAYER = "model.layers.{layer}", "layers.{layer}"
_EMBEDDING, _OUTPUT = "tok_embeddings.weight", "output.weight"
_SHARD = re.compile(r"consolidated\.([0-9]{2,3})\.pth")

RULES = (
    Rule(EMBEDDING, _EMBEDDING),
    Rule(
        f"{_NATIVE}.self_attn.q_proj.weight",
        f"{_LAYER}.attention.wq.weight",
        InterleavedHeads("num_attention_heads"),
    ),
    Rule(
        f"{_NATIVE}.self_attn.k_proj.weight",
        f"{_LAYER}.attention.wk.weight",
        InterleavedHeads("num_key_value_heads"),
    ),
    Rule(f"{_NATIVE}.self_attn.v_proj.weight", f"{_LAYER}.attention.wv.weight"),
    Rule(f"{_NATIVE}.self_attn.o_proj.weight", f"{_LAYER}.attention.wo.weight"),
    Rule(f"{_NATIVE}.mlp.gate_proj.weight", f"{_LAYER}.feed_forward.w1.weight"),
    Rule(f"{_NATIVE}.mlp.down_proj.weight", f"{_LAYER}.feed_forward.w2.weight"),
    Rule(f"{_NATIVE}.mlp.up_proj.weight", f"{_LAYER}.feed_forward.w3.weight"),
    Rule(f"{_NATIVE}.input_layernorm.weight", f"{_LAYER}.attention_norm.weight"),
    Rule(f"{_NATIVE}.post_attention_layernorm.weight", f"{_LAYER}.ffn_norm.weight"),
    Rule("model.norm.weight", "norm.weight"),
    Rule(HEAD, _OUTPUT),
)
_IGNORED = ("rope.freqs",)
_SPLIT_BY_ROWS = (".wq.weight", ".wk.weight", ".wv.weight", ".w1.weight", ".w3.weight", _OUTPUT)
_SPLIT_BY_COLUMNS = (".wo.weight", ".w2.weight")


def is_meta_directory(directory: Path) -> bool:
    """Whether `directory` holds Meta's shards."""
    return any(_SHARD.fullmatch(path.name) for path in directory.glob("consolidated.*"))


def read_meta(directory: Path, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a Meta folder; the shards stay memory-mapped.

    A head that equals the embedding number by number, or is absent, is tied to it.

    Args:
        overrides: `ModelConfig` fields or keys of `params.json` that win over the file's.

    Raises:
        CheckpointError, ConfigError: something is missing, damaged, or does not fit together.
    """
    shards = _open_shards(directory)
    norm = shards[0].get("norm.weight")
    width = norm.numel() if norm is not None else 0
    tensors = {
        name: _join(name, [shard[name] for shard in shards], width, directory) for name in shards[0]
    }
    vocab_size, _ = shape_of(tensors, _EMBEDDING, directory)
    inner, _ = shape_of(tensors, "layers.0.feed_forward.w1.weight", directory)
    config = read_params(directory, overrides, vocab_size, inner, _is_tied(tensors, shards[0]))
    natives = map_to_native(RULES, tensors, config, directory, _IGNORED)
    tokenizer = _find_tokenizer(directory)
    return Checkpoint(
        config,
        match_tensors(config, natives, directory, PARAMS),
        directory,
        format="meta",
        tokenizer=tokenizer,
        chat_format="llama3" if _has_llama3_tokens(tokenizer, config) else "llama2",
    )


def check_meta(config: ModelConfig) -> None:
    """Raise ConfigError where Meta's model cannot be `config`."""
    check_params(config)


def write_meta(
    checkpoint: Checkpoint,
    destination: Path,
    dtype: torch.dtype | None = None,
    *,
    shards: int = 1,
) -> None:
    """Write a Meta folder without a tokenizer, one tensor in memory at a time.

    Meta's loader wants an `output`, so a tied model's head is written out.

    Args:
        destination: the folder, which is made.
        dtype: of the weights on disk; left out, each tensor's own.
        shards: over how many model-parallel ranks the weights are split.

    Raises:
        ConfigError: Meta's model cannot be this one, or does not split so; nothing was written.
    """
    config = checkpoint.config
    check_meta(config)
    _check_split(config, shards)
    tensors = cast_all(checkpoint.tensors, dtype)
    if config.tie_word_embeddings:
        tensors[HEAD] = tensors[EMBEDDING]
    foreign = map_to_foreign(RULES, tensors, config)
    params, unsaid = write_params(config)
    destination.mkdir(parents=True, exist_ok=True)
    for rank in range(shards):
        part = {name: _part(name, tensor, rank, shards, config) for name, tensor in foreign.items()}
        write_torch_file(part, destination / f"consolidated.{rank:02d}.pth")
    if unsaid:
        write_json(destination / UNSAID, unsaid)
    write_json(destination / PARAMS, params)


def _open_shards(directory: Path) -> list[dict[str, StoredTensor]]:
    """The shards in order, all with the same names; none missing, none too many."""
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
        if name == _EMBEDDING:
            return concatenate(parts, _embedding_axis(parts, width, directory))
    if name in _IGNORED:
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
        f"{_EMBEDDING} has {columns} columns in each of {len(parts)} shards of {directory}; "
        f"the model is {width} wide."
    )


def _part(
    name: str, tensor: StoredTensor, rank: int, shards: int, config: ModelConfig
) -> StoredTensor:
    """What one model-parallel rank has of a tensor."""
    if shards == 1 or len(tensor.shape) != 2:
        return tensor
    by_columns = name.endswith(_SPLIT_BY_COLUMNS)
    if name == _EMBEDDING:
        by_columns = not is_llama3(config)
    axis = 1 if by_columns else 0
    length = tensor.shape[axis] // shards
    shape = list(tensor.shape)
    shape[axis] = length
    return tensor.then(lambda values: values.narrow(axis, rank * length, length), shape)


def _check_split(config: ModelConfig, shards: int) -> None:
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


def _is_tied(tensors: Mapping[str, StoredTensor], first_shard: Mapping[str, StoredTensor]) -> bool:
    if _OUTPUT not in tensors:
        return True
    output, embedding = tensors[_OUTPUT], tensors[_EMBEDDING]
    if output.shape != embedding.shape or output.dtype != embedding.dtype:
        return False
    # A glance at one row spares most models the reading of two whole tables.
    ours, other = first_shard[_OUTPUT].read()[0], first_shard[_EMBEDDING].read()[0]
    length = min(len(ours), len(other))
    if not torch.equal(ours[:length], other[:length]):
        return False
    return torch.equal(output.read(), embedding.read())


def _find_tokenizer(directory: Path) -> Path | None:
    """Beside the weights, or in the folder above, where Llama 1 and 2 have it."""
    for folder in (directory, directory.parent):
        if (folder / "tokenizer.model").is_file():
            return folder / "tokenizer.model"
    return None


def _has_llama3_tokens(tokenizer: Path | None, config: ModelConfig) -> bool:
    """Whether the tokens are Llama 3's: ranks in base64, not a SentencePiece model."""
    if tokenizer is None:
        return is_llama3(config)
    with tokenizer.open("rb") as handle:
        line = handle.read(200).split(b"\n", 1)[0].split()
    return len(line) == 2 and line[0].isascii() and line[1].isdigit()

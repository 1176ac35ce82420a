"""Meta's own Llama folders: `consolidated.NN.pth`, `params.json`, `tokenizer.model`.

Model-parallel shards join along dimensions that differ from tensor to tensor. Rotary pairs are
neighbours here, so query and key rows are permuted, each by its own count of heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from llamita.config import ModelConfig
from llamita.files import write_json
from llamita.formats.checkpoint import EMBEDDING, HEAD, Checkpoint, match_tensors
from llamita.formats.key_map import InterleavedHeads, Rule, map_to_foreign, map_to_native
from llamita.formats.meta_params import (
    PARAMS,
    UNSAID,
    check_params,
    is_llama3,
    read_params,
    write_params,
)
from llamita.formats.meta_shards import EMBEDDING as TOKENS
from llamita.formats.meta_shards import (
    OUTPUT,
    ROTARY,
    check_split,
    join_shards,
    open_shards,
    part_of,
)
from llamita.formats.stored import StoredTensor
from llamita.formats.torch_checkpoint import shape_of
from llamita.formats.torch_write import cast_all, write_torch_file

_NATIVE, _LAYER = "model.layers.{layer}", "layers.{layer}"

RULES = (
    Rule(EMBEDDING, TOKENS),
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
    Rule(HEAD, OUTPUT),
)


def read_meta(directory: Path, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a Meta folder; the shards stay memory-mapped.

    A head that equals the embedding number by number, or is absent, is tied to it.

    Args:
        overrides: `ModelConfig` fields or keys of `params.json` that win over the file's.

    Raises:
        CheckpointError, ConfigError: something is missing, damaged, or does not fit together.
    """
    shards = open_shards(directory)
    tensors = join_shards(shards, directory)
    vocab_size, _ = shape_of(tensors, TOKENS, directory)
    inner, _ = shape_of(tensors, "layers.0.feed_forward.w1.weight", directory)
    config = read_params(directory, overrides, vocab_size, inner, _is_tied(tensors, shards[0]))
    natives = map_to_native(RULES, tensors, config, directory, (ROTARY,))
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
    config = checkpoint.with_end_ids(checkpoint.end_ids).config
    check_meta(config)
    check_split(config, shards)
    tensors = cast_all(checkpoint.tensors, dtype)
    if config.tie_word_embeddings:
        tensors[HEAD] = tensors[EMBEDDING]
    foreign = map_to_foreign(RULES, tensors, config)
    params, unsaid = write_params(config)
    destination.mkdir(parents=True, exist_ok=True)
    for rank in range(shards):
        part = {
            name: part_of(name, tensor, rank, shards, config) for name, tensor in foreign.items()
        }
        write_torch_file(part, destination / f"consolidated.{rank:02d}.pth")
    if unsaid:
        write_json(destination / UNSAID, unsaid)
    write_json(destination / PARAMS, params)


def _is_tied(tensors: Mapping[str, StoredTensor], first_shard: Mapping[str, StoredTensor]) -> bool:
    if OUTPUT not in tensors:
        return True
    output, embedding = tensors[OUTPUT], tensors[TOKENS]
    if output.shape != embedding.shape or output.dtype != embedding.dtype:
        return False
    # A glance at one row spares most models the reading of two whole tables.
    ours, other = first_shard[OUTPUT].read()[0], first_shard[TOKENS].read()[0]
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

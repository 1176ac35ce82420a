"""Files that llamita writes are, to llama.cpp, the same models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from llamita.formats.checkpoint import Checkpoint, build_model
from llamita.formats.gguf_read import read_gguf
from llamita.formats.gguf_write import write_gguf
from llamita.formats.key_map import pairs_from_halves
from llamita.formats.stored import StoredTensor

from .gguf_cases import EOS, MODELS, VOCABULARY, random_checkpoint, some_ids
from .llama_cpp import LlamaCpp

LENGTH = 72
LOOKED_AT = (1, 2, 3, 9, 33, 71)


@torch.no_grad()
def logits_of(checkpoint: Checkpoint, ids: list[int]) -> torch.Tensor:
    """[T, V]"""
    logits: torch.Tensor = build_model(checkpoint)(torch.tensor([ids]))[0]
    return logits


def largest_gap(path: Path, checkpoint: Checkpoint) -> float:
    """Between the log-probabilities of all tokens at some positions, llama.cpp's and ours."""
    peer, ids = LlamaCpp(path), some_ids(LENGTH)
    ours = logits_of(checkpoint, ids).log_softmax(-1)
    gap = 0.0
    for end in LOOKED_AT:
        theirs = peer.next_tokens(ids[:end], top=checkpoint.config.vocab_size)
        assert len(theirs) == checkpoint.config.vocab_size
        gap = max(gap, *(abs(float(ours[end - 1, token]) - p) for token, p in theirs.items()))
    return gap


@pytest.mark.parametrize("name", MODELS)
def test_llama_cpp_computes_the_same_model(name: str, tmp_path: Path) -> None:
    checkpoint = random_checkpoint(**MODELS[name])
    path = tmp_path / "model.gguf"
    assert write_gguf(checkpoint, VOCABULARY, path, "f32") == []
    assert largest_gap(path, checkpoint) < 5e-5
    back = read_gguf(path)
    assert back.tokenizer == VOCABULARY
    assert (back.name, back.license) == ("Random", "apache-2.0")
    for key, tensor in checkpoint.tensors.items():
        assert torch.equal(tensor.read(), back.tensors[key].read()), key
    ids = some_ids(LENGTH)
    torch.testing.assert_close(logits_of(back, ids), logits_of(checkpoint, ids), atol=1e-5, rtol=0)


def test_llama_cpp_chooses_the_same_tokens(tmp_path: Path) -> None:
    checkpoint = random_checkpoint(tie_word_embeddings=False)
    path = tmp_path / "model.gguf"
    write_gguf(checkpoint, VOCABULARY, path, "f32")
    ids = some_ids(8)
    for _ in range(24):
        logits = logits_of(checkpoint, ids)[-1]
        logits[EOS] = -torch.inf  # as the peer is told
        ids.append(int(logits.argmax()))
    assert LlamaCpp(path).greedy(ids[:8], 24) == ids[8:]


def test_a_file_without_a_tokenizer_is_read_back(tmp_path: Path) -> None:
    checkpoint = random_checkpoint()
    write_gguf(checkpoint, None, tmp_path / "model.gguf", "f32")
    back = read_gguf(tmp_path / "model.gguf")
    assert back.tokenizer is None
    assert back.config.vocab_size == checkpoint.config.vocab_size


def test_keys_permuted_by_the_query_heads_are_another_model(tmp_path: Path) -> None:
    checkpoint = random_checkpoint()
    wrong = {}
    for name, tensor in checkpoint.tensors.items():
        if name.endswith("k_proj.weight"):
            rows = tensor.read()
            # What comes out of `write_gguf` is then permuted by 4 heads where there are 2.
            halves = pairs_from_halves(rows, 4)
            wrong[name] = StoredTensor.of(_unpermute(halves, heads=2))
        else:
            wrong[name] = tensor
    path = tmp_path / "model.gguf"
    write_gguf(replace(checkpoint, tensors=wrong), VOCABULARY, path, "f32")
    assert largest_gap(path, checkpoint) > 0.5


def _unpermute(rows: torch.Tensor, heads: int) -> torch.Tensor:
    return rows.view(heads, -1, 2, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)


@pytest.mark.parametrize("quantization", ["f16", "bf16", "q8_0", "q4_0", "q4_1"])
def test_llama_cpp_reads_every_type_that_is_written(quantization: str, tmp_path: Path) -> None:
    checkpoint = random_checkpoint()
    path = tmp_path / "model.gguf"
    assert write_gguf(checkpoint, VOCABULARY, path, quantization) == []
    back = read_gguf(path)
    assert back.tensors["model.layers.0.mlp.up_proj.weight"].kind == quantization.upper()
    assert back.tensors["model.norm.weight"].kind == "F32"
    # llama.cpp rounds activations too, to 8 bits or to those of the weights.
    assert largest_gap(path, back) < {"f16": 0.05, "bf16": 0.3}.get(quantization, 0.8)

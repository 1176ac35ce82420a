"""The real model of 135M parameters, against the gguf library and llama.cpp."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from llamita.formats.checkpoint import build_model
from llamita.formats.gguf_header import read_gguf_header
from llamita.formats.gguf_read import read_gguf
from llamita.formats.gguf_write import write_gguf
from llamita.formats.vocabulary import Vocabulary

from .llama_cpp import LlamaCpp

POSITIONS = 64
PLAIN_IDS = range(1000, 20000, 293)


def test_the_real_file_is_read_as_what_it_is(smollm2: Path) -> None:
    checkpoint = read_gguf(smollm2)
    config = checkpoint.config
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (9, 3, 64)
    assert (config.rope_theta, config.rms_norm_eps) == (100000.0, 1e-5)
    assert config.tie_word_embeddings
    assert config.count_parameters() == 134_515_008
    assert checkpoint.license == "apache-2.0"
    assert isinstance(checkpoint.tokenizer, Vocabulary)
    assert len(checkpoint.tokenizer.tokens) == 49152
    assert checkpoint.tokenizer.chat_template is not None
    assert checkpoint.tensors["model.layers.0.mlp.up_proj.weight"].kind == "Q4_1"


@pytest.mark.slow
def test_its_header_is_what_the_gguf_library_finds(smollm2: Path) -> None:
    ours, theirs = read_gguf_header(smollm2), gguf.GGUFReader(smollm2)
    assert {name: (i.shape, i.start, i.size) for name, i in ours.tensors.items()} == {
        tensor.name: (
            tuple(int(length) for length in tensor.shape[::-1]),
            tensor.data_offset,
            tensor.n_bytes,
        )
        for tensor in theirs.tensors
    }
    tokens = theirs.get_field("tokenizer.ggml.tokens")
    assert tokens is not None
    assert ours.metadata["tokenizer.ggml.tokens"] == tokens.contents()
    tensor = next(t for t in theirs.tensors if t.name == "blk.7.ffn_down.weight")
    np.testing.assert_array_equal(
        gguf.quants.dequantize(tensor.data, tensor.tensor_type),
        read_gguf(smollm2).tensors["model.layers.7.mlp.down_proj.weight"].read().numpy(),
    )


@pytest.mark.slow
@torch.no_grad()
def test_written_as_float32_it_is_llama_cpps_model(smollm2: Path, tmp_path: Path) -> None:
    checkpoint = read_gguf(smollm2)
    path = tmp_path / "f32.gguf"
    assert isinstance(checkpoint.tokenizer, Vocabulary)
    assert write_gguf(checkpoint, checkpoint.tokenizer, path, "f32") == []
    ids = list(PLAIN_IDS)[:POSITIONS]
    ours = build_model(checkpoint)(torch.tensor([ids]))[0].log_softmax(-1)
    peer = LlamaCpp(path)
    for end in range(1, POSITIONS + 1):
        [(token, log_probability)] = peer.next_tokens(ids[:end], top=1).items()
        assert token == int(ours[end - 1].argmax())
        assert abs(float(ours[end - 1, token]) - log_probability) < 0.01

"""What a GGUF file says becomes the model's config, or is refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError, LlamitaError
from llamita.formats.checkpoint import build_model
from llamita.formats.gguf_read import read_gguf
from llamita.formats.gguf_rope import frequency_factors

from .gguf_cases import LLAMA3, MODELS, YARN, config, patched_file, random_checkpoint

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"general.architecture": "gemma3"}, "has the architecture 'gemma3'"),
    "no-architecture": ({"general.architecture": None}, "names no architecture"),
    "adapter": ({"general.type": "adapter"}, "of the type 'adapter', not a model"),
    "part": ({"split.count": 3}, "is one of 3 parts of a model"),
    "missing": ({"llama.block_count": None}, "lacks llama.block_count"),
    "missing-eps": (
        {"llama.attention.layer_norm_rms_epsilon": None},
        "lacks llama.attention.layer_norm_rms_epsilon",
    ),
    "per-layer": (
        {"llama.attention.head_count_kv": np.array([2, 1], dtype=np.int32)},
        "num_key_value_heads is [2, 1]",
    ),
    "unknown": ({"llama.attention.sinks": 4}, "llama.attention.sinks = 4: this key is not known"),
    "experts": ({"llama.expert_count": 8}, "llama.expert_count = 8"),
    "logit-scale": ({"llama.logit_scale": 0.25}, "llama.logit_scale = 0.25"),
    "soft-cap": ({"llama.final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0"),
    "not-causal": ({"llama.attention.causal": False}, "llama.attention.causal = False"),
    "window": ({"llama.attention.sliding_window": 32}, "attention.sliding_window 32"),
    "partial-rotary": ({"llama.rope.dimension_count": 8}, "rope.dimension_count 8 where heads"),
    "value-length": ({"llama.attention.value_length": 32}, "value_length 32 where heads have 16"),
    "hostile-heads": (
        {
            "llama.attention.key_length": 2**31 - 2,
            "llama.attention.value_length": 2**31 - 2,
            "llama.rope.dimension_count": 2**31 - 2,
        },
        "4 heads of 2147483646, but its blk.0.attn_q.weight has 64 rows",
    ),
    "scaling": ({"llama.rope.scaling.type": "longrope"}, "rope.scaling.type = 'longrope'"),
    "yarn-magnitude": (
        {
            "llama.rope.scaling.type": "yarn",
            "llama.rope.scaling.factor": 2.0,
            "llama.rope.scaling.attn_factor": 0.5,
        },
        "rope.scaling.attn_factor = 0.5",
    ),
    "vocab-size": ({"llama.vocab_size": 300}, "vocab_size 300, but token_embd.weight has 259 rows"),
    "eps": ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "rms_norm_eps is nan"),
    "layers": ({"llama.block_count": 3}, "holds the tensors of 2 layers; its metadata has"),
    "layers-hostile": ({"llama.block_count": 2**31}, "num_hidden_layers"),
    "tokens": ({"tokenizer.ggml.tokens": "text"}, "wrong tokenizer.ggml.tokens"),
    "too-many-tokens": ({"tokenizer.ggml.tokens": ["x"] * 260}, "lists 260 tokens"),
    "types": (
        {"tokenizer.ggml.token_type": np.array([1, 2], dtype=np.int32)},
        "wrong tokenizer.ggml.token_type",
    ),
    "id": ({"tokenizer.ggml.unknown_token_id": 259}, "must be a token from 0 to 258"),
    "normalizer": ({"tokenizer.ggml.lowercase": True}, "wrong tokenizer.ggml.lowercase"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_computed_here_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    keys, problem = REFUSED[name]
    with pytest.raises(LlamitaError) as caught:
        read_gguf(patched_file(tmp_path / "model.gguf", keys))
    assert problem in caught.value.message


HARMLESS: dict[str, dict[str, Any]] = {
    "no-experts": {"llama.expert_count": 0, "llama.expert_used_count": 0},
    "window-beyond-the-context": {"llama.attention.sliding_window": 256},
    "no-window": {"llama.attention.sliding_window": 0},
    "no-scaling": {"llama.rope.scaling.type": "none", "llama.rope.scaling.finetuned": True},
    "sizes-left-out": {
        "llama.attention.key_length": None,
        "llama.attention.value_length": None,
        "llama.rope.dimension_count": None,
        "llama.vocab_size": None,
    },
    "usual-theta-left-out": {"llama.rope.freq_base": None},
    "layout-of-meta": {"llama.tensor_data_layout": "Meta AI original pth"},
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_nothing_is_read_as_nothing(name: str, tmp_path: Path) -> None:
    path = patched_file(tmp_path / "model.gguf", HARMLESS[name])
    assert read_gguf(path).config == config()


def test_overrides_win_over_fields_and_keys(tmp_path: Path) -> None:
    keys = {"llama.attention.sliding_window": 32, "llama.logit_scale": 0.25}
    path = patched_file(tmp_path / "model.gguf", keys)
    overrides = {
        "sliding_window": 16,
        "llama.logit_scale": None,
        "rope_theta": 5e5,
        "eos_token_id": 3,
    }
    read = read_gguf(path, overrides).config
    assert read == config(sliding_window=16, rope_theta=5e5, eos_token_id=3)
    with pytest.raises(ConfigError, match="there is no setting 'rope_tetha'"):
        read_gguf(path, {**overrides, "rope_tetha": 1})


def test_a_wrong_key_of_the_tokenizer_can_be_dropped(tmp_path: Path) -> None:
    path = patched_file(tmp_path / "model.gguf", {"tokenizer.ggml.lowercase": True})
    assert read_gguf(path, {"tokenizer.ggml.lowercase": None}).tokenizer is not None


def test_a_file_without_an_output_is_tied(tmp_path: Path) -> None:
    path = patched_file(tmp_path / "m.gguf", tensors={"output.weight": None}, **UNTIED)
    checkpoint = read_gguf(path)
    assert checkpoint.config.tie_word_embeddings
    model = build_model(checkpoint)
    assert model.lm_head.weight is model.model.embed_tokens.weight


UNTIED = {"tie_word_embeddings": False}


@pytest.mark.parametrize(
    "tensors",
    [
        {"blk.1.ffn_up.weight": None},
        {"blk.1.attn_q.bias": torch.zeros(64)},
        {"blk.0.attn_q.bias": torch.zeros(64)},
        {"blk.0.attn_q_norm.weight": torch.zeros(16)},
        {"blk.0.ffn_gate_inp.weight": torch.zeros(64, 2)},
        {"rope_factors_long.weight": torch.ones(8)},
        {"blk.0.attn_k.weight": torch.zeros(48, 64)},
        {"blk.0.attn_k.weight": torch.zeros(33, 64)},
        {"output_norm.weight": torch.zeros(65)},
        {"token_embd.weight": None},
    ],
    ids=lambda tensors: next(iter(tensors)),
)
def test_tensors_that_do_not_fit_are_refused(
    tensors: dict[str, torch.Tensor | None], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError):
        read_gguf(patched_file(tmp_path / "model.gguf", tensors=tensors))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"original_max_position_embeddings": 128, "factor": 32.0},
        {"high_freq_factor": 8.0, "original_max_position_embeddings": 100},
    ],
)
@pytest.mark.parametrize("head_dim", [16, 64, 128])
def test_the_scaling_of_llama_3_is_recovered_from_its_factors(
    changes: dict[str, float], head_dim: int, tmp_path: Path
) -> None:
    scaling = {**LLAMA3, **changes}
    path = patched_file(tmp_path / "model.gguf", head_dim=head_dim, rope_scaling=scaling)
    assert read_gguf(path).config.rope_scaling == scaling


def test_the_factors_of_llama_3_1_keep_short_waves_and_divide_long_ones() -> None:
    scaling = {**LLAMA3, "original_max_position_embeddings": 8192}
    big = ModelConfig(
        **{**vars_of(config()), "head_dim": 128, "rope_theta": 500000.0, "rope_scaling": scaling}
    )
    factors = frequency_factors(big)
    # Waves of less than 2048 positions, 6 on the ramp, and waves of more than 8192.
    assert factors.shape == (64,)
    assert int((factors == 1).sum()) == 29
    assert int((factors == 8).sum()) == 29


def vars_of(settings: ModelConfig) -> dict[str, Any]:
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    return {name: getattr(settings, name) for name in (*names, "num_attention_heads")}


@pytest.mark.parametrize(
    ("factors", "problem"),
    [
        (torch.linspace(1, 3, 8), "no llama3 scaling gives"),
        (torch.ones(7), "there must be 8"),
        (torch.zeros(8), "all above 0"),
    ],
)
def test_factors_of_another_scaling_are_refused(
    factors: torch.Tensor, problem: str, tmp_path: Path
) -> None:
    path = patched_file(tmp_path / "model.gguf", tensors={"rope_freqs.weight": factors})
    with pytest.raises(CheckpointError, match=problem):
        read_gguf(path)
    assert read_gguf(path, {"rope_scaling": None}).config == config()


def test_factors_a_little_beside_a_scaling_are_refused(tmp_path: Path) -> None:
    factors = frequency_factors(config(rope_scaling=LLAMA3))
    for wrong, is_read in ((1e-4, False), (1e-5, False), (2e-7, True)):
        for place in (int(factors.argmin()), len(factors) // 2):
            moved = factors.clone()
            moved[place] *= 1 + wrong
            path = patched_file(tmp_path / "m.gguf", tensors={"rope_freqs.weight": moved})
            if is_read:
                assert read_gguf(path).config.rope_scaling == LLAMA3
            else:
                with pytest.raises(CheckpointError, match="no llama3 scaling gives"):
                    read_gguf(path)


def test_factors_of_one_are_no_scaling(tmp_path: Path) -> None:
    path = patched_file(tmp_path / "m.gguf", tensors={"rope_freqs.weight": torch.ones(8)})
    assert read_gguf(path).config == config()


def test_factors_beside_another_scaling_are_refused(tmp_path: Path) -> None:
    tensors = {"rope_freqs.weight": torch.ones(8)}
    path = patched_file(tmp_path / "m.gguf", tensors=tensors, rope_scaling=YARN)
    with pytest.raises(CheckpointError, match="does not go with its yarn scaling"):
        read_gguf(path)
    path = patched_file(tmp_path / "m.gguf", tensors=tensors, **MODELS["qwen2"])
    with pytest.raises(CheckpointError, match="does not go with its qwen2"):
        read_gguf(path)


def test_several_tokens_can_end_a_turn(tmp_path: Path) -> None:
    keys = {"tokenizer.ggml.eot_token_id": 7, "tokenizer.ggml.eom_token_id": 258}
    read = read_gguf(patched_file(tmp_path / "model.gguf", keys))
    assert read.config.eos_token_ids == (258, 7)


@pytest.mark.parametrize("name", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_files_that_the_gguf_library_quantized_are_read(name: str, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType[name]
    checkpoint = random_checkpoint(**MODELS["qwen3"])
    path = patched_file(tmp_path / "model.gguf", **MODELS["qwen3"])
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(tmp_path / "quantized.gguf", "qwen3")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            sub_type = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
    quantized = {}
    for tensor in reader.tensors:
        data = np.array(tensor.data)
        if data.ndim == 2:
            data = gguf.quants.quantize(data, kind)
            quantized[tensor.name] = gguf.quants.dequantize(data, kind)
            writer.add_tensor(tensor.name, data, raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = read_gguf(tmp_path / "quantized.gguf")
    assert read.config == checkpoint.config
    up = read.tensors["model.layers.1.mlp.up_proj.weight"]
    assert up.kind == name
    np.testing.assert_array_equal(up.read().float().numpy(), quantized["blk.1.ffn_up.weight"])

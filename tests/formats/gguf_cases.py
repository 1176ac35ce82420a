"""Small random models and a vocabulary for GGUF tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from llamita.config import ModelConfig
from llamita.formats.checkpoint import HEAD, Checkpoint
from llamita.formats.gguf_encode import PlannedTensor, encode_header, padding
from llamita.formats.gguf_header import read_gguf_header
from llamita.formats.gguf_write import write_gguf
from llamita.formats.stored import StoredTensor
from llamita.formats.vocabulary import CONTROL, NORMAL, Vocabulary
from llamita.model.transformer import Transformer
from llamita.quantization.blocks import dequantize
from llamita.quantization.kinds import KINDS

VOCABULARY = Vocabulary(
    model="gpt2",
    tokens=[f"Ġw{number}" for number in range(256)] + ["Ġt", "<s>", "</s>"],
    pre="gpt-2",
    types=[NORMAL] * 257 + [CONTROL] * 2,
    merges=["Ġ t"],
    ids={"bos": 257, "eos": 258},
    add_bos=False,
    chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",
)
"""Whole words as tokens: llama.cpp gives no probabilities for bytes that are half a character."""

EOS = 258
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
QKV_BIAS = {"attention_bias": True, "attention_output_bias": False}

MODELS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "untied": {"tie_word_embeddings": False},
    "wide-heads": {"head_dim": 32},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "qwen2": QKV_BIAS,
    "wide-heads-with-bias": {"head_dim": 32, **QKV_BIAS},
    "qwen3": {"use_qk_norm": True, "head_dim": 32, "rms_norm_eps": 1e-3},
    "theta-and-eps": {"rope_theta": 500000.0, "rms_norm_eps": 1e-2},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "yarn": {"rope_scaling": YARN},
    "yarn-qwen3": {"rope_scaling": YARN, "use_qk_norm": True},
    "llama3": {"rope_scaling": LLAMA3},
    "llama3-unusual": {
        "rope_scaling": {**LLAMA3, "high_freq_factor": 8.0, "original_max_position_embeddings": 100}
    },
}
"""Changes to `config` that between them use everything the three architectures have."""


def config(**changes: Any) -> ModelConfig:
    """Two layers, four query heads, two key-value heads."""
    fields: dict[str, Any] = {
        "vocab_size": 259,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "bos_token_id": 257,
        "eos_token_id": EOS,
    }
    return ModelConfig(**{**fields, **changes})


def random_checkpoint(**changes: Any) -> Checkpoint:
    """Weights large enough that a wrong rotation, norm or bias shows in every position."""
    model = Transformer(config(**changes))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean, spread = (1.0, 0.2) if "norm" in name else (0.0, 0.15)
            parameter.normal_(mean, spread, generator=generator)
    tensors = {name: StoredTensor.of(tensor) for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors[HEAD]
    return Checkpoint(model.config, tensors, Path("random"), name="Random", license="apache-2.0")


def some_ids(count: int) -> list[int]:
    """Ordinary tokens of the vocabulary."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count,), generator=generator).tolist()


def patched_file(
    path: Path,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, torch.Tensor | None] | None = None,
    **changes: Any,
) -> Path:
    """A random model's file with some metadata and tensors set, or gone where they are None."""
    write_gguf(random_checkpoint(**changes), VOCABULARY, path, "f32")
    header = read_gguf_header(path)
    entries = {**header.metadata, **(keys or {})}
    entries = {key: value for key, value in entries.items() if value is not None}
    numbers: dict[str, torch.Tensor | None] = {
        name: dequantize(header.bytes_of(info), info.kind.name, info.shape)
        for name, info in header.tensors.items()
    }
    numbers |= tensors or {}
    kept = {name: tensor for name, tensor in numbers.items() if tensor is not None}
    plan = [PlannedTensor(name, tensor.shape, KINDS["F32"]) for name, tensor in kept.items()]
    content = encode_header(entries, plan)
    for tensor in kept.values():
        data = tensor.float().contiguous().numpy().tobytes()
        content += data + padding(len(data))
    path.write_bytes(content)
    return path

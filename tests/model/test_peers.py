"""Models written by `transformers` give the same logits here, and what is saved here gives the same
logits there.

Weights are spread so that a wrong rotation, mask, scale or bias moves logits by far more than the
tolerance.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llamita.config import ModelConfig
from llamita.formats.checkpoint import build_model
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer

transformers = pytest.importorskip("transformers")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

TOLERANCE = 2e-5
VOCABULARY = 97
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "pad_token_id": 0,
}
CONTEXT = SHAPE["max_position_embeddings"]
YARN = {"rope_type": "yarn", "factor": 4.0}

ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "theta": {"rope_type": "default", "rope_theta": 500000.0},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_theta": 500000.0,
    },
    "yarn": YARN,
    "yarn with a length": {**YARN, "original_max_position_embeddings": 24},
    "yarn with attention_factor": {**YARN, "attention_factor": 1.7},
    "yarn with mscale": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.2},
    "yarn with betas": {**YARN, "beta_fast": 12.0, "beta_slow": 2.0, "truncate": False},
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with all heads": ("llama", {"num_key_value_heads": 4}),
    "llama with one kv head": ("llama", {"num_key_value_heads": 1}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama with attention_bias": ("llama", {"attention_bias": True}),
    "llama with mlp_bias": ("llama", {"mlp_bias": True, "rms_norm_eps": 1e-2}),
    "llama with head_dim": ("llama", {"head_dim": 32}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral with window": ("mistral", {"sliding_window": 7}),
    "mistral with odd width": ("mistral", {"hidden_size": 50, "head_dim": 8}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2 with window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 0},
    ),
    "qwen2 with window off": ("qwen2", {"sliding_window": 9}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3 with biases": ("qwen3", {"head_dim": 12, "attention_bias": True}),
    "qwen3 with window": (
        "qwen3",
        {
            "head_dim": 12,
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 0,
        },
    ),
    **{f"rope {name}": ("llama", {"rope_parameters": rope}) for name, rope in ROPES.items()},
}


def spread(model: torch.nn.Module, seed: int = 0) -> None:
    """Weights at which every part of the function shows in the logits."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                parameter.copy_(1 + 0.3 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.5 * noise)
            else:
                parameter.copy_(1.2 * noise / parameter.shape[1] ** 0.5)


def peer_model(model_type: str, **settings: Any) -> Any:
    config = transformers.AutoConfig.for_model(model_type, **{**SHAPE, **settings})
    model = transformers.AutoModelForCausalLM.from_config(config)
    spread(model)
    return model.eval()


def some_ids(length: int, batch: int = 2) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def largest_gap(peer: Any, model: Transformer, length: int = 80) -> float:
    ids = some_ids(length)
    logits = peer(ids).logits
    assert logits.std() > 0.5, "logits too flat to show a fault"
    return float((logits - model(ids)).abs().max())


@pytest.mark.parametrize("case", CASES)
def test_a_model_of_transformers_has_equal_logits_here_and_saved_here_there_again(
    case: str, tmp_path: Path
) -> None:
    model_type, settings = CASES[case]
    peer = peer_model(model_type, **settings)
    peer.save_pretrained(tmp_path / "theirs")

    model = build_model(load_checkpoint(tmp_path / "theirs"))
    assert largest_gap(peer, model) <= TOLERANCE

    save_model_directory(model, tmp_path / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    assert largest_gap(again, model) <= TOLERANCE
    assert load_checkpoint(tmp_path / "ours").config == model.config


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1, 2 * CONTEXT])
def test_dynamic_scaling_equals_transformers_around_and_beyond_the_context(
    length: int, tmp_path: Path
) -> None:
    peer = peer_model("llama", rope_parameters=ROPES["dynamic"])
    peer.save_pretrained(tmp_path)
    model = build_model(load_checkpoint(tmp_path))
    assert largest_gap(peer, model, length) <= TOLERANCE


def test_a_checkpoint_in_shards_has_equal_logits(tmp_path: Path) -> None:
    peer = peer_model("llama")
    peer.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert largest_gap(peer, build_model(load_checkpoint(tmp_path))) <= TOLERANCE


def test_a_bfloat16_checkpoint_has_equal_logits_in_float32(tmp_path: Path) -> None:
    peer = peer_model("llama").to(torch.bfloat16)
    peer.save_pretrained(tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.dtype == torch.bfloat16
    model = build_model(checkpoint, dtype=torch.float32)
    peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert largest_gap(peer, model) <= TOLERANCE


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_qk_norm": True, "attention_bias": True, "sliding_window": 6},
        {"attention_bias": True, "attention_output_bias": False, "sliding_window": 6},
        {"attention_bias": True, "mlp_bias": True},
        {"hidden_size": 50, "head_dim": 16},
        {"tie_word_embeddings": False, "eos_token_id": (3, 4), "residual_dropout": 0.1},
    ],
)
def test_a_model_made_here_has_equal_logits_in_transformers(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    model = Transformer(ModelConfig(**{**SHAPE, **settings})).eval()
    spread(model)
    save_model_directory(model, tmp_path)
    peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert largest_gap(peer, model) <= TOLERANCE


@torch.no_grad()
def test_greedy_tokens_of_transformers_equal_ours(tmp_path: Path) -> None:
    peer = peer_model("mistral", sliding_window=7)
    peer.save_pretrained(tmp_path)
    model = build_model(load_checkpoint(tmp_path))
    prompt = some_ids(10, batch=1)
    theirs = peer.generate(prompt, max_new_tokens=24, do_sample=False, eos_token_id=None)
    ids = prompt
    for _ in range(24):
        ids = torch.cat((ids, model(ids)[:, -1:].argmax(-1)), dim=1)
    assert ids.tolist() == theirs.tolist()

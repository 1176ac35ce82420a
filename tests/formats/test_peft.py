"""Adapters in PEFT's format: each variant gives PEFT's logits, or is refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import llamita
from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.model import Transformer

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]])


def _base(folder: Path, **fields: Any) -> Path:
    shape: dict[str, Any] = {
        "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    model = Transformer(ModelConfig(**{**shape, **fields})).initialize(3)
    save_model_directory(model, folder)
    return folder


def _adapter(
    base: Path, folder: Path, change: Callable[[Any], None] = lambda model: None, **config: Any
) -> torch.Tensor:
    """Have PEFT write an adapter with random numbers; its logits."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_pretrained(base)
    change(model)
    settings = {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "v_proj", "down_proj"]}
    wanted = peft.LoraConfig(task_type="CAUSAL_LM", **{**settings, **config})
    adapted = peft.get_peft_model(model, wanted).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if parameter.requires_grad:
                parameter.add_(0.2 * torch.randn_like(parameter))
                assert "lora_" in name or config
        logits: torch.Tensor = adapted(IDS).logits
    adapted.save_pretrained(folder)
    return logits


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by pattern": {"target_modules": r".*layers\.1\..*(k_proj|gate_proj)"},
    "all linear": {"target_modules": "all-linear"},
    "one layer": {"layers_to_transform": [1]},
    "rank stabilized": {"use_rslora": True},
    "decomposed": {"use_dora": True},
    "ranks": {"rank_pattern": {"q_proj": 2, r"layers\.1\.mlp\.down_proj": 3}},
    "alphas": {"alpha_pattern": {"v_proj": 3}, "rank_pattern": {"v_proj": 6}},
    "biases": {"bias": "all"},
    "biases of targets": {"bias": "lora_only"},
    "whole modules": {"modules_to_save": ["norm", "gate_proj"]},
    "tokens": {"trainable_token_indices": [3, 7]},
    "embedding": {"target_modules": ["embed_tokens", "q_proj"]},
    "gaussian": {"init_lora_weights": "gaussian"},
}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_peft_writes_gives_its_logits(variant: str, tied: bool, tmp_path: Path) -> None:
    if variant == "embedding" and tied:
        pytest.skip("PEFT adapts the embedding alone there, and leaves the tied head")
    base = _base(tmp_path / "base", tie_word_embeddings=tied, attention_bias=True)
    expected = _adapter(base, tmp_path / "adapter", **VARIANTS[variant])
    before = llamita.load(base).logits(IDS)
    lm = llamita.load(tmp_path / "adapter")
    assert torch.allclose(lm.logits(IDS), expected, atol=2e-5)
    assert not torch.allclose(expected, before, atol=1e-2)


@pytest.mark.parametrize("tied", [True, False])
def test_tables_that_were_resized_come_along(tied: bool, tmp_path: Path) -> None:
    base = _base(tmp_path / "base", tie_word_embeddings=tied)

    def resize(model: Any) -> None:
        model.resize_token_embeddings(45, mean_resizing=False)

    expected = _adapter(base, tmp_path / "adapter", resize)
    lm = llamita.load(tmp_path / "adapter")
    assert lm.config.vocab_size == 45
    assert torch.allclose(lm.logits(IDS), expected, atol=2e-5)


def test_weights_in_a_pickle_are_read_as_weights_alone(tmp_path: Path) -> None:
    base = _base(tmp_path / "base")
    expected = _adapter(base, tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    torch.save(load_file(path), tmp_path / "adapter" / "adapter_model.bin")
    path.unlink()
    assert torch.allclose(llamita.load(tmp_path / "adapter").logits(IDS), expected, atol=2e-5)


@pytest.fixture
def plain(tmp_path: Path) -> tuple[Path, Path]:
    """A base and an adapter of it, written without PEFT."""
    base = _base(tmp_path / "base")
    folder = tmp_path / "adapter"
    folder.mkdir()
    config = {
        "peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"],
        "base_model_name_or_path": str(base),
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config))
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {f"{module}.lora_A.weight": torch.ones(2, 32),
               f"{module}.lora_B.weight": torch.ones(32, 2)}  # fmt: skip
    save_file(tensors, folder / "adapter_model.safetensors")
    return base, folder


def _say(folder: Path, **values: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"peft_type": "IA3"}, "an adapter of the type 'IA3'"),
        ({"peft_type": None}, "an adapter of the type None"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out = True"),
        ({"lora_bias": True}, "lora_bias = True"),
        ({"layer_replication": [[0, 1], [0, 1]]}, "layer_replication"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights = 'pissa_niter_4'"),
        ({"init_lora_weights": "olora"}, "olora"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"an_invention": 3}, "an_invention = 3"),
        ({"r": 0}, "r = 0"),
        ({"r": 3}, "of rank 3"),
        ({"use_dora": True}, "has no lora_magnitude_vector"),
        ({"rank_pattern": {"(": 2}}, "pattern"),
        ({"trainable_token_indices": ["a"]}, "must be token ids"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    values: dict[str, Any], words: str, plain: tuple[Path, Path]
) -> None:
    _say(plain[1], **values)
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(plain[1])
    assert words in error.value.message


def test_settings_that_say_nothing_are_no_obstacle(plain: tuple[Path, Path]) -> None:
    _say(plain[1], lora_bias=False, megatron_config=None, a_later_one=None, another={})
    load_checkpoint(plain[1])


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight", (2, 32), "only lora_A"),
        ("base_model.model.model.layers.0.extra.weight", (2, 2), "layers.0.extra"),
        ("model.norm.weight", (32,), "cannot apply: model.norm.weight"),
        ("base_model.model.model.layers.0.x.lora_C", (2,), "cannot apply"),
        ("base_model.model.model.norm.weight", (31,), "model.norm.weight of"),
    ],
)
def test_tensors_that_have_no_place_are_named(
    name: str, shape: tuple[int, ...], words: str, plain: tuple[Path, Path]
) -> None:
    path = plain[1] / "adapter_model.safetensors"
    save_file({**load_file(path), name: torch.ones(shape)}, path)
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(plain[1])
    assert words in error.value.message


def test_the_base_is_found_named_or_asked_for(plain: tuple[Path, Path], tmp_path: Path) -> None:
    base, folder = plain
    expected = llamita.load(folder).logits(IDS)
    _say(folder, base_model_name_or_path="../base")
    assert torch.equal(llamita.load(folder).logits(IDS), expected)
    _say(folder, base_model_name_or_path="somebody/model")
    with pytest.raises(CheckpointError, match="'somebody/model', which is not on this") as error:
        llamita.load(folder)
    assert "--base" in (error.value.hint or "")
    assert torch.equal(llamita.load(folder, base=base).logits(IDS), expected)
    _say(folder, base_model_name_or_path=None)
    with pytest.raises(CheckpointError, match="names no base"):
        llamita.load(folder)
    with pytest.raises(ConfigError, match="is a whole model"):
        llamita.load(base, base=base)
    with pytest.raises(CheckpointError, match="an adapter itself"):
        llamita.load(folder, base=folder)
    other = _base(tmp_path / "other", hidden_size=64)
    with pytest.raises(CheckpointError, match="q_proj is"):
        llamita.load(folder, base=other)


def test_an_adapter_beside_a_config_is_still_one(plain: tuple[Path, Path]) -> None:
    base, folder = plain
    expected = llamita.load(folder).logits(IDS)
    shutil.copy(base / "config.json", folder)
    assert torch.equal(llamita.load(folder).logits(IDS), expected)


def test_a_folder_without_its_weights_says_so(plain: tuple[Path, Path]) -> None:
    (plain[1] / "adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no adapter_model\.safetensors"):
        llamita.load(plain[1])

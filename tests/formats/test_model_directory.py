"""A model directory keeps every bit, and what does not fit is named."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError
from llamita.formats import safetensors_file
from llamita.formats.checkpoint import Checkpoint, build_model
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.formats.safetensors_file import read_safetensors
from llamita.formats.torch_file import read_torch_file
from llamita.model.transformer import Transformer

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def make(seed: int = 0, **fields: Any) -> Transformer:
    shape = {
        "vocab_size": 40,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
    }
    return Transformer(ModelConfig(**{**shape, **fields})).initialize(seed)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model_directory(make(), tmp_path / "model")
    return tmp_path / "model"


def rewrite(directory: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change the tensors of a saved model."""
    path = directory / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def set_key(directory: Path, **keys: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tie_word_embeddings": False},
        {"use_qk_norm": True, "attention_bias": True},
        {"attention_bias": True, "mlp_bias": True},
    ],
)
def test_load_save_load_keeps_every_bit(
    fields: dict[str, Any], dtype: torch.dtype, tmp_path: Path
) -> None:
    model = make(**fields).to(dtype)
    save_model_directory(model, tmp_path / "first")
    again = build_model(load_checkpoint(tmp_path / "first"))
    save_model_directory(again, tmp_path / "second")
    first, second = load_checkpoint(tmp_path / "first"), load_checkpoint(tmp_path / "second")
    assert first.config == second.config == model.config
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        assert tensor.dtype == dtype
        assert torch.equal(tensor.read(), second.tensors[name].read())
        assert torch.equal(tensor.read(), model.state_dict()[name])


def test_the_file_keeps_the_dtype_asked_for_and_loading_gives_the_one_asked_for(
    tmp_path: Path,
) -> None:
    save_model_directory(make(), tmp_path, dtype=torch.bfloat16)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.dtype == torch.bfloat16
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == "bfloat16"
    assert build_model(checkpoint).lm_head.weight.dtype == torch.bfloat16
    assert build_model(checkpoint, dtype=torch.float32).lm_head.weight.dtype == torch.float32


def test_mixed_dtypes_load_as_the_one_that_holds_all(saved: Path) -> None:
    rewrite(saved, lambda t: t.update({EMBEDDING: t[EMBEDDING].to(torch.bfloat16)}))
    model = build_model(load_checkpoint(saved))
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_a_large_model_is_saved_in_shards_that_load_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    monkeypatch.setattr(safetensors_file, "LARGEST_SHARD", 4000)
    save_model_directory(model, tmp_path / "model")
    shards = sorted(path.name for path in (tmp_path / "model").glob("*.safetensors"))
    assert len(shards) > 2
    assert shards[0] == f"model-00001-of-{len(shards):05d}.safetensors"
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(shards)
    assert index["metadata"]["total_size"] == 4 * model.config.count_parameters()
    loaded = load_checkpoint(tmp_path / "model").tensors
    assert all(torch.equal(loaded[name].read(), model.state_dict()[name]) for name in loaded)


def test_a_tied_model_stores_one_table(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    assert EMBEDDING in tensors
    assert HEAD not in tensors


def test_training_on_loaded_weights_leaves_the_file_alone(saved: Path) -> None:
    before = (saved / "model.safetensors").read_bytes()
    model = build_model(load_checkpoint(saved))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert (saved / "model.safetensors").read_bytes() == before


def test_saving_over_the_directory_a_model_is_mapped_from_is_safe(saved: Path) -> None:
    model = build_model(load_checkpoint(saved))
    ids = torch.arange(8)[None]
    with torch.no_grad():
        before = model(ids)
        save_model_directory(model, saved)
        assert torch.equal(model(ids), before)
        assert torch.equal(build_model(load_checkpoint(saved))(ids), before)


def test_the_read_tensors_become_the_parameters_without_a_copy(saved: Path) -> None:
    checkpoint = load_checkpoint(saved)
    parameters = dict(build_model(checkpoint).named_parameters())
    for name, tensor in checkpoint.tensors.items():
        assert parameters[name].data_ptr() == tensor.read().data_ptr()


def test_loaded_models_are_in_evaluation_mode_and_trainable(saved: Path) -> None:
    model = build_model(load_checkpoint(saved))
    assert not model.training
    assert all(p.requires_grad and not p.is_meta for p in model.parameters())


# What is in the file and what the config says


def test_a_tied_model_takes_a_head_that_equals_the_embedding(saved: Path) -> None:
    rewrite(saved, lambda t: t.update({HEAD: t[EMBEDDING].clone()}))
    model = build_model(load_checkpoint(saved))
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_tied_model_takes_a_head_in_place_of_the_embedding(saved: Path) -> None:
    rewrite(saved, lambda t: t.update({HEAD: t.pop(EMBEDDING)}))
    model = build_model(load_checkpoint(saved))
    assert torch.equal(model.model.embed_tokens.weight, make().lm_head.weight)


def test_a_tied_model_with_a_stale_head_is_refused(saved: Path) -> None:
    rewrite(saved, lambda t: t.update({HEAD: t[EMBEDDING] + 1e-3}))
    with pytest.raises(CheckpointError, match="stale") as error:
        load_checkpoint(saved)
    assert "tie_word_embeddings=false" in str(error.value)
    untied = build_model(load_checkpoint(saved, {"tie_word_embeddings": False}))
    assert not torch.equal(untied.lm_head.weight, untied.model.embed_tokens.weight)


def test_an_untied_model_without_a_head_is_refused_with_the_way_out(saved: Path) -> None:
    set_key(saved, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"no lm_head\.weight") as error:
        load_checkpoint(saved)
    assert "tie_word_embeddings=true" in str(error.value)
    assert load_checkpoint(saved, {"tie_word_embeddings": True}).config.tie_word_embeddings


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
def test_prefixes_of_compiled_and_distributed_models_are_dropped(prefix: str, saved: Path) -> None:
    plain = load_checkpoint(saved).tensors

    def wrap(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            tensors[prefix + name] = tensors.pop(name)

    rewrite(saved, wrap)
    loaded = load_checkpoint(saved).tensors
    assert all(torch.equal(loaded[name].read(), plain[name].read()) for name in plain)


def test_a_compiled_model_is_saved_under_plain_names(tmp_path: Path) -> None:
    model = make()
    for layer in range(2):
        block = model.model.layers[layer]
        model.model.layers[layer] = torch.compile(block)  # type: ignore[assignment]
    save_model_directory(model, tmp_path)
    assert not any("_orig_mod" in name for name in load_file(tmp_path / "model.safetensors"))
    load_checkpoint(tmp_path)


def test_a_name_twice_is_refused(saved: Path) -> None:
    rewrite(saved, lambda t: t.update({"module." + EMBEDDING: t[EMBEDDING].clone()}))
    with pytest.raises(CheckpointError, match="twice"):
        load_checkpoint(saved)


def rotary(theta: float) -> torch.Tensor:
    return 1.0 / theta ** (torch.arange(0, 4, 2).float() / 4)


def test_rotary_buffers_that_the_config_gives_are_dropped(saved: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    rewrite(saved, lambda t: t.update({name: rotary(10000.0).to(torch.bfloat16)}))
    assert name not in load_checkpoint(saved).tensors


def test_rotary_buffers_of_another_theta_are_refused(saved: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    rewrite(saved, lambda t: t.update({name: rotary(500000.0)}))
    with pytest.raises(CheckpointError, match="rope_theta 10000"):
        load_checkpoint(saved)
    load_checkpoint(saved, {"rope_theta": 500000.0})


def test_missing_and_unexpected_tensors_are_listed_with_their_counts(saved: Path) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["model.norm.weight"]
        for i in range(12):
            tensors[f"extra.{i:02d}"] = torch.zeros(1)

    rewrite(saved, change)
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(saved)
    message = error.value.message
    assert "1 missing: model.norm.weight" in message
    assert "12 unexpected: extra.00" in message
    assert "extra.09 and 2 more" in message
    assert "extra.10" not in message


def test_a_bias_that_the_config_does_not_know_is_refused(saved: Path) -> None:
    name = "model.layers.0.self_attn.q_proj.bias"
    rewrite(saved, lambda t: t.update({name: torch.zeros(16)}))
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(saved)


def test_a_wrong_shape_is_named_with_both_shapes(saved: Path) -> None:
    set_key(saved, num_key_value_heads=4)
    with pytest.raises(CheckpointError, match=r"k_proj.weight is \[8, 16\], not \[16, 16\]"):
        load_checkpoint(saved)


def test_integer_weights_are_refused(saved: Path) -> None:
    name = "model.norm.weight"
    rewrite(saved, lambda t: t.update({name: t[name].to(torch.int8)}))
    with pytest.raises(CheckpointError, match=f"{name} is int8"):
        load_checkpoint(saved)


# Saving


def test_a_model_that_no_architecture_expresses_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mlp_bias"):
        save_model_directory(make(use_qk_norm=True, mlp_bias=True), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


class BrokenTokenizer:
    def save(self, directory: Path) -> None:
        raise OSError(28, "No space left on device")


def test_a_failure_while_saving_leaves_the_older_model_whole(saved: Path) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    with pytest.raises(OSError, match="No space"):
        save_model_directory(make(seed=1), saved, BrokenTokenizer())
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("content", ["notes.txt", "config.json/notes.txt"])
def test_a_folder_with_other_things_is_never_replaced(content: str, tmp_path: Path) -> None:
    path = tmp_path / "home" / content
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(CheckpointError, match="other things"):
        save_model_directory(make(), tmp_path / "home")
    assert path.read_text() == "mine"


def test_a_file_is_never_replaced_by_a_directory(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("mine")
    with pytest.raises(CheckpointError, match="is a file"):
        save_model_directory(make(), tmp_path / "model")


def test_the_generation_config_holds_the_token_ids(tmp_path: Path) -> None:
    model = make(bos_token_id=1, eos_token_id=(2, 3))
    save_model_directory(model, tmp_path / "plain")
    assert load_checkpoint(tmp_path / "plain").generation == {
        "bos_token_id": 1,
        "eos_token_id": [2, 3],
    }
    save_model_directory(model, tmp_path / "more", generation={"temperature": 0.6})
    checkpoint: Checkpoint = load_checkpoint(tmp_path / "more")
    assert checkpoint.generation["temperature"] == 0.6
    assert checkpoint.config.eos_token_id == (2, 3)


def test_every_end_is_one_whichever_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "model"
    save_model_directory(make(eos_token_id=2), path, generation={"eos_token_id": [3, 2]})
    assert load_checkpoint(path).end_ids == (2, 3)
    one = load_checkpoint(path).with_end_ids([4])
    assert (one.end_ids, one.config.eos_token_id, one.generation) == ((4,), 4, {})
    assert one.with_end_ids([4, 3]).config.eos_token_id == (4, 3)
    assert one.with_end_ids([]).end_ids == ()
    for value, ends in ((5, (5,)), ([5, 6], (5, 6)), (None, ())):
        assert load_checkpoint(path, {"eos_token_id": value}).end_ids == ends
    for wrong in (["</s>"], -1, [2, 10**6], True, 2.5):
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": wrong}))
        with pytest.raises(CheckpointError, match=r"generation_config\.json has eos_token_id = "):
            _ = load_checkpoint(path).end_ids


def test_every_file_has_the_mode_that_the_umask_leaves(saved: Path) -> None:
    plain = saved.parent / "plain"
    plain.touch()
    assert {path.stat().st_mode for path in saved.iterdir()} == {plain.stat().st_mode}


@pytest.mark.parametrize("name", ["model.safetensors", "model.bin"])
def test_weights_that_may_not_be_read_are_not_called_damaged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    (tmp_path / name).touch()
    monkeypatch.setattr(Path, "open", refuse)
    read = read_safetensors if name.endswith("safetensors") else read_torch_file
    with pytest.raises(CheckpointError, match=rf"{name}: Permission denied") as error:
        read(tmp_path / name)
    assert error.value.hint is None

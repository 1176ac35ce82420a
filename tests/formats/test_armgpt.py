"""ArmGPT's checkpoints: joined projections, rotary tables, configs that lack fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import llamita
from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError, LlamitaError
from llamita.formats.armgpt import check_armgpt, feed_forward_width, write_armgpt
from llamita.formats.checkpoint import build_model
from llamita.formats.detect import load_checkpoint
from tests.formats.golden_cases import TOLERANCE, golden, random_checkpoint

CASE = golden("armgpt")
FITTING: dict[str, Any] = {"num_key_value_heads": 8}
COS = "transformer.blocks.1.attn.rope_cos"


def content() -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(CASE.path, weights_only=True)
    return loaded


def save(value: Any, folder: Path) -> Path:
    torch.save(value, folder / "weights.bin")
    return folder / "weights.bin"


def test_the_config_is_completed_by_what_armgpt_fixes() -> None:
    checkpoint = load_checkpoint(CASE.path)
    config = checkpoint.config
    assert (checkpoint.format, checkpoint.chat_format) == ("armgpt", "armgpt")
    assert (config.rms_norm_eps, config.rope_theta) == (1e-6, 10000.0)
    assert (config.num_attention_heads, config.num_key_value_heads) == (4, 4)
    assert (config.intermediate_size, config.max_position_embeddings) == (192, 80)
    assert (config.residual_dropout, config.attention_dropout) == (0.1, 0.1)
    assert config.tie_word_embeddings


def test_width_layers_vocabulary_and_context_come_from_the_shapes(tmp_path: Path) -> None:
    file = content()
    file["config"] = {"n_head": 4}
    lm = llamita.load(save(file, tmp_path), device="cpu")
    assert lm.config.max_position_embeddings == 80
    assert CASE.gap(lm) <= TOLERANCE


@pytest.mark.parametrize("without", ["n_head", "config"])
def test_the_number_of_heads_must_be_said(without: str, tmp_path: Path) -> None:
    file = content()
    file.pop(without, None)
    file.get("config", {}).pop(without, None)
    path = save(file, tmp_path)
    with pytest.raises(CheckpointError, match="how many heads") as error:
        load_checkpoint(path)
    assert "--override num_attention_heads=4" in str(error.value)
    for key in ("num_attention_heads", "n_head"):
        lm = llamita.load(path, device="cpu", override={key: 4})
        assert CASE.gap(lm) <= TOLERANCE


def test_the_context_must_be_said_where_no_table_says_it(tmp_path: Path) -> None:
    file = content()
    del file["config"]["block_size"]
    file["model"] = {name: t for name, t in file["model"].items() if "rope" not in name}
    path = save(file, tmp_path)
    with pytest.raises(CheckpointError, match="context"):
        load_checkpoint(path)
    lm = llamita.load(path, device="cpu", override={"block_size": 80})
    assert CASE.gap(lm) <= TOLERANCE


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda table: table + 0.01, "rope_theta 10000"),
        (lambda table: table[:, :4], "head_dim 16"),
        (lambda table: table[:40], "context 80"),
        (lambda table: table.flatten(), "head_dim 16"),
    ],
)
def test_rotary_tables_of_another_model_are_an_error(
    change: Any, named: str, tmp_path: Path
) -> None:
    file = content()
    file["model"][COS] = change(file["model"][COS]).clone()
    with pytest.raises(CheckpointError, match=named) as error:
        load_checkpoint(save(file, tmp_path))
    assert COS in error.value.message


def test_tables_of_another_theta_are_right_once_it_is_said(tmp_path: Path) -> None:
    file = content()
    angles = torch.outer(torch.arange(80.0), 1 / 5e5 ** (torch.arange(0, 16, 2) / 16))
    for name in file["model"]:
        if "rope" in name:
            file["model"][name] = angles.cos() if "cos" in name else angles.sin()
    path = save(file, tmp_path)
    with pytest.raises(CheckpointError, match="rope_theta"):
        load_checkpoint(path)
    assert load_checkpoint(path, {"rope_theta": 5e5}).config.rope_theta == 5e5


def test_half_precision_checkpoints_have_rounded_tables(tmp_path: Path) -> None:
    file = content()
    file["model"] = {name: tensor.bfloat16() for name, tensor in file["model"].items()}
    assert load_checkpoint(save(file, tmp_path)).dtype == torch.bfloat16


def test_a_context_that_is_overridden_may_differ_from_the_tables() -> None:
    for length in (40, 200):
        config = load_checkpoint(CASE.path, {"max_position_embeddings": length}).config
        assert config.max_position_embeddings == length


def test_joined_projections_are_taken_apart_by_rows(tmp_path: Path) -> None:
    file = content()
    joined = file["model"]["transformer.blocks.0.attn.c_attn.weight"]
    model = build_model(load_checkpoint(CASE.path))
    attention = model.model.layers[0].self_attn
    assert torch.equal(attention.q_proj.weight, joined[:64])
    assert torch.equal(attention.k_proj.weight, joined[64:128])
    assert torch.equal(attention.v_proj.weight, joined[128:])


def test_norms_of_queries_and_keys_survive_the_way_there_and_back(tmp_path: Path) -> None:
    checkpoint = random_checkpoint(**FITTING, use_qk_norm=True)
    write_armgpt(checkpoint, tmp_path / "new.pt")
    state = torch.load(tmp_path / "new.pt", weights_only=True)
    assert state["config"]["use_qk_norm"] is True
    assert state["model"]["transformer.blocks.0.attn.q_norm.weight"].shape == (8,)
    ids = torch.arange(48)[None]
    with torch.no_grad():
        before = build_model(checkpoint)(ids)
        for config in (state["config"], {"n_head": 8}):
            torch.save({**state, "config": config}, tmp_path / "again.pt")
            again = load_checkpoint(tmp_path / "again.pt")
            assert again.config.use_qk_norm
            assert torch.equal(build_model(again)(ids), before)


def test_a_config_that_denies_the_norms_of_the_weights_is_an_error(tmp_path: Path) -> None:
    write_armgpt(random_checkpoint(**FITTING, use_qk_norm=True), tmp_path / "new.pt")
    file = torch.load(tmp_path / "new.pt", weights_only=True)
    file["config"]["use_qk_norm"] = False
    with pytest.raises(CheckpointError, match=r"unexpected.*k_norm"):
        load_checkpoint(save(file, tmp_path))


def test_the_optimizer_beside_the_model_does_not_matter(tmp_path: Path) -> None:
    file = content() | {"optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "lr": 1e-3}}
    assert CASE.gap(llamita.load(save(file, tmp_path), device="cpu")) <= TOLERANCE


def test_a_stale_head_is_an_error(tmp_path: Path) -> None:
    file = content()
    file["model"]["lm_head.weight"] = file["model"]["lm_head.weight"] * 2
    with pytest.raises(CheckpointError, match="stale"):
        load_checkpoint(save(file, tmp_path))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_head", 3),
        ("n_head", "4"),
        ("n_embd", 128),
        ("n_layer", 2),
        ("vocab_size", 301),
        ("block_size", 0),
        ("dropout", 2),
        ("bias", True),
        ("n_kv_head", 2),
        ("use_qk_norm", True),
    ],
)
def test_values_that_cannot_be_are_refused(key: str, value: object, tmp_path: Path) -> None:
    file = content()
    file["config"][key] = value
    with pytest.raises(LlamitaError):
        load_checkpoint(save(file, tmp_path))


def test_the_file_is_written_as_armgpt_writes_it(tmp_path: Path) -> None:
    write_armgpt(load_checkpoint(CASE.path), tmp_path / "new.pt", torch.bfloat16)
    written = torch.load(tmp_path / "new.pt", weights_only=True)
    assert written["config"] == content()["config"]
    assert written["model"].keys() == content()["model"].keys()
    assert torch.equal(written["model"][COS], content()["model"][COS])
    dtypes = {t.dtype for name, t in written["model"].items() if "rope" not in name}
    assert dtypes == {torch.bfloat16}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"rms_norm_eps": 1e-5}, "rms_norm_eps is 1e-05"),
        ({"rope_theta": 5e5}, "rope_theta is 500000"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is"),
        ({"num_key_value_heads": 4}, "num_key_value_heads is 4"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is false"),
        ({"attention_bias": True}, "attention_bias is true"),
        ({"mlp_bias": True}, "mlp_bias is true"),
        ({"sliding_window": 8}, "sliding_window is 8"),
        ({"head_dim": 16}, "head_dim is 16.*64 / 8"),
        ({"intermediate_size": 176}, "intermediate_size is 176.*always 192"),
    ],
)
def test_what_armgpt_fixes_otherwise_is_refused(fields: dict[str, Any], named: str) -> None:
    config = random_checkpoint(**{**FITTING, **fields}).config
    with pytest.raises(ConfigError, match=named):
        check_armgpt(config)


@pytest.mark.parametrize(
    ("width", "inner"),
    [(64, 192), (384, 1024), (512, 1408), (768, 2048), (1024, 2752), (1280, 3456)],
)
def test_the_feed_forward_width_is_armgpts(width: int, inner: int) -> None:
    assert feed_forward_width(width) == inner


@pytest.mark.parametrize(
    ("layers", "heads", "width", "parameters"),
    [(24, 16, 1024, 319_996_928), (32, 24, 1536, 930_645_504)],
)
def test_presets_have_the_sizes_that_armgpt_gives_them(
    layers: int, heads: int, width: int, parameters: int
) -> None:
    config = ModelConfig(16000, width, feed_forward_width(width), layers, heads)
    assert config.count_parameters() == parameters

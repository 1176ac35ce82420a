"""Hermes' checkpoints: configs, bare state dicts, presets, ties and wrappers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import llamita
from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError, LlamitaError
from llamita.formats.checkpoint import Checkpoint, build_model
from llamita.formats.detect import load_checkpoint
from llamita.formats.hermes import PRESETS, check_hermes, read_hermes, write_hermes
from llamita.formats.stored import StoredTensor
from tests.formats.golden_cases import TOLERANCE, golden, random_checkpoint

TIED, UNTIED = golden("hermes-tied"), golden("hermes-untied-mha")


def content(case: Any = TIED) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(case.path, weights_only=True)
    return loaded


def save(value: Any, folder: Path) -> Path:
    torch.save(value, folder / "weights.bin")
    return folder / "weights.bin"


def small_preset(name: str) -> dict[str, torch.Tensor]:
    """A state dict of a preset's shape, each tensor one number in memory."""
    preset = PRESETS[name]
    width, inner = preset.hidden_size, preset.intermediate_size
    rows, kv_rows = preset.widths()["query rows"], preset.widths()["key rows"]
    shapes = {"embed_tokens": (100, width), "norm": (width,), "lm_head": (100, width)}
    for layer in range(preset.num_hidden_layers):
        shapes |= {
            f"layers.{layer}.{part}": shape
            for part, shape in {
                "input_layernorm": (width,),
                "post_attention_layernorm": (width,),
                "self_attn.q_proj": (rows, width),
                "self_attn.k_proj": (kv_rows, width),
                "self_attn.v_proj": (kv_rows, width),
                "self_attn.o_proj": (width, rows),
                "mlp.gate_proj": (inner, width),
                "mlp.up_proj": (inner, width),
                "mlp.down_proj": (width, inner),
            }.items()
        }
    return {
        f"{name}.weight": torch.zeros(1, dtype=torch.bfloat16).expand(shape)
        for name, shape in shapes.items()
    }


def test_the_config_of_the_file_is_the_models() -> None:
    checkpoint = load_checkpoint(UNTIED.path)
    config = checkpoint.config
    assert (checkpoint.format, checkpoint.chat_format) == ("hermes", "chatml-tools")
    assert (config.rms_norm_eps, config.tie_word_embeddings) == (0.01, False)
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 1, 2)
    assert config.max_position_embeddings == 96


def test_what_the_config_lacks_comes_from_the_shapes(tmp_path: Path) -> None:
    for case in (TIED, UNTIED):
        file = content(case)
        eps = file["config"]["rms_norm_eps"]
        file["config"] = {"num_heads": 4, "rms_norm_eps": eps}
        lm = llamita.load(save(file, tmp_path), device="cpu")
        assert lm.config.tie_word_embeddings is (case is TIED)
        assert case.gap(lm) <= TOLERANCE


def test_a_bare_state_dict_needs_its_heads(tmp_path: Path) -> None:
    path = save(content()["model"], tmp_path)
    with pytest.raises(CheckpointError, match="how many heads") as error:
        load_checkpoint(path)
    assert all(name in str(error.value) for name in ("num_attention_heads", *PRESETS))
    lm = llamita.load(path, device="cpu", override={"num_attention_heads": 4})
    assert TIED.gap(lm) <= TOLERANCE
    assert lm.config.num_key_value_heads == 2


@pytest.mark.parametrize("preset", PRESETS)
def test_a_bare_state_dict_of_a_presets_shape_is_known(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bare.pt"
    monkeypatch.setattr(
        "llamita.formats.torch_checkpoint.read_torch_file", lambda _: small_preset(preset)
    )
    for named in (None, preset, f"hermes-{preset}"):
        config = read_hermes(path, preset=named).config
        shape = PRESETS[preset]
        assert config.num_attention_heads == shape.num_attention_heads
        assert config.num_key_value_heads == shape.num_key_value_heads
        assert config.head_dim == shape.head_dim
        assert config.max_position_embeddings == (8192 if "gemma" in preset else 4096)
        assert (config.vocab_size, config.rms_norm_eps) == (100, 1e-6)
    other = "270m" if preset != "270m" else "1b"
    with pytest.raises(ConfigError, match=f"not of the preset '{other}'.*hidden_size is"):
        read_hermes(path, preset=other)


def test_presets_have_the_sizes_that_hermes_gives_them() -> None:
    def count(name: str) -> int:
        return ModelConfig(vocab_size=32000, **vars(PRESETS[name])).count_parameters()

    assert round(count("500m") / 1e6) == 644
    assert round(count("1b") / 1e5) == 10345


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
def test_wrapper_prefixes_are_taken_off(prefix: str, tmp_path: Path) -> None:
    file = content()
    file["model"] = {prefix + name: tensor for name, tensor in file["model"].items()}
    assert TIED.gap(llamita.load(save(file, tmp_path), device="cpu")) <= TOLERANCE


def test_a_stale_head_of_a_tied_model_is_an_error(tmp_path: Path) -> None:
    file = content()
    file["model"]["lm_head.weight"] = file["model"]["lm_head.weight"] + 0.1
    path = save(file, tmp_path)
    with pytest.raises(CheckpointError, match="stale"):
        load_checkpoint(path)
    for key in ("tie_word_embeddings", "tie_embeddings"):
        assert not load_checkpoint(path, {key: False}).config.tie_word_embeddings


def test_a_tied_model_has_one_table_and_stays_tied_through_training(tmp_path: Path) -> None:
    model = build_model(load_checkpoint(TIED.path))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with torch.no_grad():
        model.lm_head.weight.add_(0.5)
    tensors = {name: StoredTensor.of(t.detach()) for name, t in model.state_dict().items()}
    del tensors["lm_head.weight"]
    write_hermes(Checkpoint(model.config, tensors, tmp_path), tmp_path / "trained.pt")
    state = torch.load(tmp_path / "trained.pt", weights_only=True)["model"]
    assert torch.equal(state["lm_head.weight"], state["embed_tokens.weight"])
    assert torch.equal(state["lm_head.weight"], model.lm_head.weight)
    again = build_model(load_checkpoint(tmp_path / "trained.pt"))
    assert again.lm_head.weight is again.model.embed_tokens.weight
    original = torch.load(TIED.path, weights_only=True)["model"]["lm_head.weight"]
    assert torch.equal(again.lm_head.weight, original + 0.5)


@pytest.mark.parametrize("key", ["logit_softcap", "rope_scaling_factor", "moe_experts"])
def test_a_key_that_is_not_known_is_refused_by_name(key: str, tmp_path: Path) -> None:
    file = content()
    file["config"][key] = 30.0
    path = save(file, tmp_path)
    with pytest.raises(CheckpointError, match=rf"{key} = 30\.0"):
        load_checkpoint(path)
    assert load_checkpoint(path, {key: None}).config.vocab_size == 320


def test_a_key_that_says_nothing_is_no_reason_to_refuse(tmp_path: Path) -> None:
    file = content()
    file["config"] |= {"sliding_window": None, "attention_bias": False, "dropout": 0.1}
    assert load_checkpoint(save(file, tmp_path)).config.residual_dropout == 0.1


def test_overrides_take_both_spellings_and_refuse_others() -> None:
    assert load_checkpoint(TIED.path, {"max_seq_len": 50}).config.max_position_embeddings == 50
    config = load_checkpoint(TIED.path, {"max_position_embeddings": 60}).config
    assert config.max_position_embeddings == 60
    with pytest.raises(ConfigError, match="max_seq_lenn") as error:
        load_checkpoint(TIED.path, {"max_seq_lenn": 50})
    assert error.value.hint == "Did you mean 'max_seq_len'?"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_heads", "four"),
        ("num_heads", 0),
        ("num_heads", 3),
        ("head_dim", 10),
        ("head_dim", True),
        ("hidden_size", 32),
        ("hidden_size", 2**40),
        ("vocab_size", -5),
        ("num_layers", 99),
        ("intermediate_size", 177),
        ("num_kv_heads", 4),
        ("rms_norm_eps", "small"),
        ("rope_theta", [10000]),
        ("tie_embeddings", 1),
        ("eos_token_id", 320),
    ],
)
def test_values_that_cannot_be_are_refused(key: str, value: object, tmp_path: Path) -> None:
    file = content()
    file["config"][key] = value
    with pytest.raises(LlamitaError):
        load_checkpoint(save(file, tmp_path))


def test_tensors_that_are_missing_or_too_many_are_listed(tmp_path: Path) -> None:
    file = content()
    file["model"]["layers.1.mlp.extra.weight"] = torch.zeros(3)
    with pytest.raises(CheckpointError, match=r"no place.*layers\.1\.mlp\.extra\.weight"):
        load_checkpoint(save(file, tmp_path))
    file = content()
    del file["model"]["layers.1.mlp.up_proj.weight"]
    with pytest.raises(CheckpointError, match=r"missing.*layers\.1\.mlp\.up_proj"):
        load_checkpoint(save(file, tmp_path))


def test_the_config_is_written_as_hermes_writes_it(tmp_path: Path) -> None:
    write_hermes(load_checkpoint(TIED.path), tmp_path / "new.pt")
    written = torch.load(tmp_path / "new.pt", weights_only=True)
    assert written["config"] == content()["config"]
    assert list(written["config"]) == list(content()["config"])
    assert written.keys() == {"model", "config"}


def test_weights_are_written_in_the_type_asked_for(tmp_path: Path) -> None:
    write_hermes(load_checkpoint(TIED.path), tmp_path / "new.pt", torch.bfloat16)
    state = torch.load(tmp_path / "new.pt", weights_only=True)["model"]
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"use_qk_norm": True}, "use_qk_norm is true"),
        ({"attention_bias": True}, "attention_bias is true"),
        ({"mlp_bias": True}, "mlp_bias is true"),
        ({"sliding_window": 16}, "sliding_window is 16"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is"),
        ({"eos_token_id": (1, 2)}, r"eos_token_id is \[1, 2\]"),
    ],
)
def test_what_hermes_cannot_express_is_refused(
    fields: dict[str, Any], named: str, tmp_path: Path
) -> None:
    checkpoint = random_checkpoint(**fields)
    with pytest.raises(ConfigError, match=named):
        check_hermes(checkpoint.config)
    with pytest.raises(ConfigError, match=named):
        write_hermes(checkpoint, tmp_path / "new.pt")
    assert not (tmp_path / "new.pt").exists()


@pytest.mark.parametrize("value", [torch.zeros(2), torch.tensor(4), 10**400, float("nan")])
def test_values_of_other_kinds_are_an_error_and_no_crash(value: object, tmp_path: Path) -> None:
    for key in ("num_heads", "head_dim", "more"):
        file = content()
        file["config"][key] = value
        with pytest.raises(LlamitaError):
            load_checkpoint(save(file, tmp_path))

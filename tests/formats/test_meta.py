"""Meta's folders: shards, params.json in all its variants, and what it leaves unsaid."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import llamita
from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError, LlamitaError
from llamita.formats.checkpoint import build_model
from llamita.formats.detect import load_checkpoint
from llamita.formats.meta import check_meta, write_meta
from llamita.formats.meta_params import context_of, feed_forward_width, scaling_of, write_params
from tests.formats.golden_cases import TOLERANCE, golden, random_checkpoint

CASE = golden("meta-llama-1-shard")
TWO = golden("meta-llama-2-shards-mha")
IDS = torch.arange(48)[None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the golden case to change."""
    target = tmp_path / "model"
    target.mkdir()
    for name in ("consolidated.00.pth", "params.json"):
        (target / name).write_bytes((CASE.path / name).read_bytes())
    return target


def set_params(folder: Path, **changes: Any) -> None:
    """Set keys of params.json; None takes one away."""
    path = folder / "params.json"
    params = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in params.items() if v is not None}))


def write_shards(state: dict[str, Tensor], count: int, folder: Path, embedding_axis: int) -> None:
    """Split a whole state dict as model-parallel ranks hold it."""
    for rank in range(count):
        part = {}
        for name, tensor in state.items():
            axis: int | None = 0
            if tensor.dim() == 1:
                axis = None
            elif name.split(".")[-2] in ("wo", "w2"):
                axis = 1
            elif name == "tok_embeddings.weight":
                axis = embedding_axis
            part[name] = tensor if axis is None else tensor.chunk(count, axis)[rank].clone()
        torch.save(part, folder / f"consolidated.{rank:02}.pth")


@pytest.fixture
def eight(tmp_path: Path) -> tuple[Path, Tensor]:
    """A folder with one shard of a model that splits into eight, and its logits."""
    checkpoint = random_checkpoint(num_key_value_heads=8, tie_word_embeddings=False)
    write_meta(checkpoint, tmp_path / "one")
    with torch.no_grad():
        return tmp_path / "one", build_model(checkpoint)(IDS)


@pytest.mark.parametrize("embedding_axis", [0, 1])
@pytest.mark.parametrize("count", [2, 8])
def test_shards_join_along_the_axes_of_their_tensors(
    eight: tuple[Path, Tensor], count: int, embedding_axis: int, tmp_path: Path
) -> None:
    one, logits = eight
    shutil.copytree(one, tmp_path / "many")
    state = torch.load(one / "consolidated.00.pth", weights_only=True)
    write_shards(state, count, tmp_path / "many", embedding_axis)
    with torch.no_grad():
        assert torch.equal(build_model(load_checkpoint(tmp_path / "many"))(IDS), logits)


@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_what_is_written_in_shards_reads_back(count: int, theta: float, tmp_path: Path) -> None:
    checkpoint = random_checkpoint(num_key_value_heads=8, rope_theta=theta)
    write_meta(checkpoint, tmp_path / "new", shards=count)
    shards = sorted((tmp_path / "new").glob("*.pth"))
    assert len(shards) == count
    shape = list(torch.load(shards[0], weights_only=True)["tok_embeddings.weight"].shape)
    assert shape == ([48, 64 // count] if theta == 10000 else [48 // count, 64])
    with torch.no_grad():
        ours = build_model(load_checkpoint(tmp_path / "new"))(IDS)
        assert torch.equal(ours, build_model(checkpoint)(IDS))


def test_shards_that_do_not_divide_the_model_are_refused(tmp_path: Path) -> None:
    for count in (0, 3, 16):
        with pytest.raises(ConfigError, match=str(count)):
            write_meta(random_checkpoint(), tmp_path / "new", shards=count)
    assert not (tmp_path / "new").exists()


def test_missing_shards_are_named(eight: tuple[Path, Tensor], tmp_path: Path) -> None:
    one, _ = eight
    state = torch.load(one / "consolidated.00.pth", weights_only=True)
    write_shards(state, 8, one, 1)
    (one / "consolidated.07.pth").unlink()
    with pytest.raises(CheckpointError, match=r"lacks consolidated\.07\.pth of 8 shards"):
        load_checkpoint(one)
    (one / "consolidated.02.pth").unlink()
    with pytest.raises(CheckpointError, match=r"lacks consolidated\.02\.pth"):
        load_checkpoint(one)


def test_shards_too_many_are_named(folder: Path) -> None:
    shutil.copy(folder / "consolidated.00.pth", folder / "consolidated.01.pth")
    with pytest.raises(CheckpointError, match=r"too many are consolidated\.01\.pth"):
        load_checkpoint(folder)


def test_norms_that_differ_between_shards_are_an_error(tmp_path: Path) -> None:
    target = tmp_path / "two"
    shutil.copytree(TWO.path, target)
    for path in (target, *target.iterdir()):
        path.chmod(0o755)
    shard = torch.load(target / "consolidated.01.pth", weights_only=True)
    shard["layers.1.ffn_norm.weight"] += 1
    torch.save(shard, target / "consolidated.01.pth")
    with pytest.raises(CheckpointError, match=r"layers\.1\.ffn_norm\.weight.*same in every shard"):
        load_checkpoint(target)


def test_a_shard_with_other_tensors_is_an_error(tmp_path: Path) -> None:
    target = tmp_path / "two"
    shutil.copytree(TWO.path, target)
    for path in (target, *target.iterdir()):
        path.chmod(0o755)
    shard = torch.load(target / "consolidated.01.pth", weights_only=True)
    del shard["norm.weight"]
    torch.save(shard, target / "consolidated.01.pth")
    with pytest.raises(CheckpointError, match=r"norm\.weight is in one alone"):
        load_checkpoint(target)


def test_the_vocabulary_may_be_left_to_the_shapes(folder: Path) -> None:
    for value in (-1, None):
        set_params(folder, vocab_size=value)
        assert CASE.gap(llamita.load(folder, device="cpu")) <= TOLERANCE


def test_the_feed_forward_width_must_be_that_of_the_weights(folder: Path) -> None:
    set_params(folder, multiple_of=256)
    with pytest.raises(CheckpointError, match=r"width of 256.*192 rows") as error:
        load_checkpoint(folder)
    assert "--override intermediate_size=192" in str(error.value)
    lm = llamita.load(folder, device="cpu", override={"intermediate_size": 192})
    assert CASE.gap(lm) <= TOLERANCE
    set_params(folder, multiple_of=2, ffn_dim_multiplier=1.13)
    assert CASE.gap(llamita.load(folder, device="cpu")) <= TOLERANCE


@pytest.mark.parametrize(
    ("dim", "multiple_of", "multiplier", "inner"),
    [
        (4096, 256, None, 11008),
        (5120, 256, None, 13824),
        (8192, 4096, 1.3, 28672),
        (4096, 1024, 1.3, 14336),
        (2048, 256, 1.5, 8192),
    ],
)
def test_the_formula_gives_the_released_widths_and_is_solved_for_them(
    dim: int, multiple_of: int, multiplier: float | None, inner: int
) -> None:
    assert feed_forward_width(dim, multiple_of, multiplier) == inner
    params, _ = write_params(ModelConfig(32, dim, inner, 1, 32))
    found = feed_forward_width(dim, params["multiple_of"], params.get("ffn_dim_multiplier"))
    assert found == inner


def test_every_feed_forward_width_can_be_said() -> None:
    for width in (64, 68, 576, 960):
        for inner in (1, 2, 63, 64, 65, 176, 1000, 1536, 2561, 7777):
            params, _ = write_params(ModelConfig(32, width, inner, 1, 2))
            multiplier = params.get("ffn_dim_multiplier")
            assert feed_forward_width(width, params["multiple_of"], multiplier) == inner


@pytest.mark.parametrize(
    ("changes", "context"),
    [
        ({"norm_eps": 1e-6}, 2048),
        ({"norm_eps": 1e-5}, 4096),
        ({"rope_theta": 1e6}, 16384),
        ({"rope_theta": 500000.0}, 8192),
        ({"rope_theta": 500000.0, "use_scaled_rope": False}, 8192),
        ({"rope_theta": 500000.0, "use_scaled_rope": True}, 131072),
    ],
)
def test_the_context_is_that_of_the_generation(
    folder: Path, changes: dict[str, Any], context: int
) -> None:
    set_params(folder, **changes)
    assert load_checkpoint(folder).config.max_position_embeddings == context
    overridden = load_checkpoint(folder, {"max_position_embeddings": 77}).config
    assert overridden.max_position_embeddings == 77


def test_the_65b_of_llama_1_has_the_epsilon_of_llama_2_and_its_own_context() -> None:
    shape = {"vocab_size": 32, "hidden_size": 8192, "intermediate_size": 64}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 64, "rms_norm_eps": 1e-5}
    assert context_of(ModelConfig(**shape, **layers, num_key_value_heads=64)) == 2048
    assert context_of(ModelConfig(**shape, **layers, num_key_value_heads=8)) == 4096
    narrow = {**shape, "hidden_size": 4096}
    assert context_of(ModelConfig(**narrow, **layers, num_key_value_heads=64)) == 4096


def test_epsilon_and_theta_are_read(folder: Path) -> None:
    set_params(folder, norm_eps=1e-6, rope_theta=500000.0)
    config = load_checkpoint(folder).config
    assert (config.rms_norm_eps, config.rope_theta) == (1e-6, 500000.0)


def test_scaled_positions_have_the_factor_of_their_size_unless_it_is_said(
    folder: Path, tmp_path: Path
) -> None:
    set_params(folder, rope_theta=500000.0, use_scaled_rope=True)
    scaling = load_checkpoint(folder).config.rope_scaling
    assert scaling == {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    for override in (
        {"rope_scaling_factor": 32.0},
        {"rope_scaling": {**scaling, "factor": 32.0}},
    ):
        found = load_checkpoint(folder, override).config.rope_scaling
        assert found is not None
        assert found["factor"] == 32.0
    assert load_checkpoint(folder, {"rope_scaling": None}).config.rope_scaling is None
    assert [scaling_of(width)["factor"] for width in (2048, 3072, 4096)] == [32.0, 32.0, 8.0]
    small = random_checkpoint(
        hidden_size=2048,
        num_hidden_layers=1,
        intermediate_size=8,
        rope_theta=500000.0,
        rope_scaling=scaling_of(2048),
    )
    write_meta(small, tmp_path / "3.2")
    assert load_checkpoint(tmp_path / "3.2").config.rope_scaling == scaling_of(2048)
    assert json.loads((tmp_path / "3.2" / "params.json").read_text())["use_scaled_rope"] is True


def test_a_tied_model_gets_the_output_that_metas_loader_wants(tmp_path: Path) -> None:
    write_meta(random_checkpoint(), tmp_path / "new")
    state = torch.load(tmp_path / "new" / "consolidated.00.pth", weights_only=True)
    assert torch.equal(state["output.weight"], state["tok_embeddings.weight"])
    assert load_checkpoint(tmp_path / "new").config.tie_word_embeddings
    del state["output.weight"]
    state["rope.freqs"] = torch.zeros(4)
    torch.save(state, tmp_path / "new" / "consolidated.00.pth")
    again = load_checkpoint(tmp_path / "new")
    assert again.config.tie_word_embeddings
    with torch.no_grad():
        ours = build_model(again)(IDS)
        assert torch.equal(ours, build_model(random_checkpoint())(IDS))


def test_an_output_that_differs_in_one_number_is_its_own(tmp_path: Path) -> None:
    write_meta(random_checkpoint(), tmp_path / "new")
    path = tmp_path / "new" / "consolidated.00.pth"
    state = torch.load(path, weights_only=True)
    state["output.weight"] = state["output.weight"].clone()
    state["output.weight"][-1, -1] += 1
    torch.save(state, path)
    assert not load_checkpoint(tmp_path / "new").config.tie_word_embeddings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("moe", {"num_experts": 8}),
        ("quantization_args", {"scheme": "int8"}),
        ("sliding_window", 4096),
        ("vision_chunk_size", 448),
    ],
)
def test_a_key_that_is_not_known_is_refused_by_name(folder: Path, key: str, value: object) -> None:
    set_params(folder, **{key: value})
    if key == "sliding_window":
        assert CASE.gap(llamita.load(folder, override={key: None}, device="cpu")) <= TOLERANCE
    with pytest.raises(CheckpointError, match=f"{key} = "):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dim", None),
        ("dim", "64"),
        ("dim", 128),
        ("n_heads", 3),
        ("n_heads", None),
        ("n_kv_heads", 4),
        ("n_layers", 4),
        ("multiple_of", 0),
        ("ffn_dim_multiplier", "big"),
        ("norm_eps", 0),
        ("use_scaled_rope", "yes"),
        ("vocab_size", 287),
        ("head_dim", 32),
        ("hidden_dim", 176),
    ],
)
def test_values_that_cannot_be_are_refused(folder: Path, key: str, value: object) -> None:
    set_params(folder, **{key: value})
    with pytest.raises(LlamitaError):
        load_checkpoint(folder)


def test_harmless_keys_are_harmless(folder: Path) -> None:
    set_params(folder, max_batch_size=32, model_parallel_size=1, head_dim=16, hidden_dim=192)
    assert CASE.gap(llamita.load(folder, device="cpu")) <= TOLERANCE


def test_what_params_cannot_say_stands_beside_it(tmp_path: Path) -> None:
    checkpoint = random_checkpoint(bos_token_id=3, eos_token_id=(1, 2))
    write_meta(checkpoint, tmp_path / "new")
    known = {"dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "multiple_of", "norm_eps"}
    assert json.loads((tmp_path / "new" / "params.json").read_text()).keys() <= known
    config = load_checkpoint(tmp_path / "new").config
    assert (config.max_position_embeddings, config.bos_token_id) == (96, 3)
    assert config.eos_token_ids == (1, 2)
    (tmp_path / "new" / "llamita.json").write_text('{"rms_norm_eps": 1}')
    with pytest.raises(CheckpointError, match="rms_norm_eps"):
        load_checkpoint(tmp_path / "new")


def test_ends_of_the_generation_config_stand_beside_params(tmp_path: Path) -> None:
    checkpoint = random_checkpoint(eos_token_id=1)
    write_meta(replace(checkpoint, generation={"eos_token_id": [2, 1]}), tmp_path / "new")
    assert load_checkpoint(tmp_path / "new").end_ids == (1, 2)
    write_meta(replace(checkpoint, generation={"eos_token_id": 1}), tmp_path / "one")
    assert load_checkpoint(tmp_path / "one").config.eos_token_id == 1


def test_a_folder_that_says_everything_has_nothing_beside_it(tmp_path: Path) -> None:
    write_meta(load_checkpoint(CASE.path), tmp_path / "new")
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["consolidated.00.pth", "params.json"]


def test_the_kind_of_tokenizer_tells_the_chat_format(folder: Path) -> None:
    assert load_checkpoint(folder).chat_format == "llama2"
    assert load_checkpoint(folder).tokenizer is None
    (folder / "tokenizer.model").write_bytes(b"IQ== 0\nIg== 1\n")
    checkpoint = load_checkpoint(folder)
    assert checkpoint.tokenizer == folder / "tokenizer.model"
    assert checkpoint.chat_format == "llama3"
    (folder / "tokenizer.model").rename(folder.parent / "tokenizer.model")
    assert load_checkpoint(folder).tokenizer == folder.parent / "tokenizer.model"
    (folder / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00")
    checkpoint = load_checkpoint(folder)
    assert checkpoint.tokenizer == folder / "tokenizer.model"
    assert checkpoint.chat_format == "llama2"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"head_dim": 16}, "head_dim is 16.*64 / 8"),
        ({"attention_bias": True}, "attention_bias is true"),
        ({"mlp_bias": True}, "mlp_bias is true"),
        ({"use_qk_norm": True}, "use_qk_norm is true"),
        ({"sliding_window": 8}, "sliding_window is 8"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is"),
        ({"rope_scaling": {**scaling_of(64), "factor": 32.0}}, r"rope_scaling is.*32\.0"),
    ],
)
def test_what_meta_cannot_express_is_refused(
    fields: dict[str, Any], named: str, tmp_path: Path
) -> None:
    checkpoint = random_checkpoint(**fields)
    with pytest.raises(ConfigError, match=named):
        check_meta(checkpoint.config)
    with pytest.raises(ConfigError, match=named):
        write_meta(checkpoint, tmp_path / "new")
    assert not (tmp_path / "new").exists()

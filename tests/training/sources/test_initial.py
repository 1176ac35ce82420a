"""Going on from a model: shape, tables, exactness, and what does not fit it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import llamita
from llamita.cli.main import run
from llamita.config import ModelConfig, preset
from llamita.data.prepare import prepare
from llamita.errors import ConfigError, Interrupted, LlamitaError, TrainingError
from llamita.formats.huggingface import save_model_directory
from llamita.model import Transformer
from llamita.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from llamita.tokenizer.load import tokenizer_of
from llamita.training.records.metrics import read_metrics
from llamita.training.records.observer import Observer
from llamita.training.run import train
from llamita.training.settings.recipe import Recipe
from llamita.training.settings.recipe_file import load_recipe
from llamita.training.sources.initial import InitialModel, with_context
from llamita.training.sources.model_source import ModelSource
from tests.training.recipes import small_recipe
from tests.training.runs import stop_after, weights_of
from tests.training.tokenizers import with_added


def _recipe(model: Path, *assignments: str, steps: int = 4) -> Recipe:
    return small_recipe(f"init={model}", *assignments, steps=steps)


@pytest.fixture(scope="module")
def base(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run."""
    run = tmp_path_factory.mktemp("base") / "run"
    train(data, run, small_recipe("model.residual_dropout=0.1", steps=3))
    return run


def _save(folder: Path, tokenizer: Tokenizer, **fields: object) -> Path:
    """An untrained model directory with a vocabulary padded by a few rows."""
    shape = {
        "vocab_size": tokenizer.vocab_size + 4, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 64, "eos_token_id": tokenizer.eos_token_id,
    }  # fmt: skip
    config = ModelConfig(**{**shape, **fields})  # type: ignore[arg-type]
    save_model_directory(Transformer(config).initialize(1), folder, tokenizer)
    return folder


def test_the_model_begun_with_is_the_model_that_eval_sees(data: Path, base: Path) -> None:
    tokenizer = load_tokenizer(data)
    start = InitialModel.open(_recipe(base), tokenizer)
    ours, theirs = start.build().eval(), llamita.load(base)
    ids = torch.tensor([tokenizer.encode("the llama sees every small tree near our river")])
    assert torch.equal(ours(ids), theirs.logits(ids))
    # Dropout belongs to how a run was trained, so config.json does not carry it.
    assert start.config == theirs.config


def test_a_run_that_goes_on_begins_at_the_loss_where_the_other_ended(
    data: Path, base: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    observer = Observer(say=said.append, on_step=lambda *args: None)
    still = ("optimizer.learning_rate=1e-30", "optimizer.weight_decay=0")
    train(data, tmp_path / "run", _recipe(base, *still), observer=observer)
    assert any("the data's tokenizer is the model's" in line for line in said)
    end = [m for m in read_metrics(base / "metrics.jsonl") if "validation_loss" in m][-1]
    begin = [m for m in read_metrics(tmp_path / "run" / "metrics.jsonl") if "validation_loss" in m]
    assert begin[0]["validation_loss"] == end["validation_loss"]
    before, after = weights_of(base), weights_of(tmp_path / "run")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_init_and_its_fingerprint_stand_in_the_recipe_and_replay(
    data: Path, base: Path, tmp_path: Path
) -> None:
    train(data, tmp_path / "run", _recipe(base))
    recipe = load_recipe(tmp_path / "run" / "recipe.toml")
    assert recipe.init == str(base)
    assert (recipe.init_fingerprint or "").startswith("sha256:")
    train(None, tmp_path / "again", recipe)
    first, second = weights_of(tmp_path / "run"), weights_of(tmp_path / "again")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["model.norm.weight"], weights_of(base)["model.norm.weight"])


def test_a_run_resumes_without_its_model_and_to_the_bit(
    data: Path, base: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(base / "latest", model)
    recipe = _recipe(model, "model.residual_dropout=0.2", steps=8)
    train(data, tmp_path / "whole", recipe)
    with pytest.raises(Interrupted):
        train(data, tmp_path / "parts", recipe, observer=stop_after(3))
    shutil.rmtree(model)
    train(data, tmp_path / "parts", recipe)
    whole, parts = weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_field_that_a_later_version_adds_leaves_the_fingerprint(base: Path) -> None:
    source = ModelSource.open(str(base), "init")
    config = source.checkpoint.config
    later = dataclasses.make_dataclass(
        "Later", [("invention", int, 0)], bases=(ModelConfig,), frozen=True
    )
    fields = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.init}

    def fingerprint(**more: object) -> str:
        checkpoint = dataclasses.replace(source.checkpoint, config=later(**fields, **more))
        return ModelSource(checkpoint, source.tokenizer).fingerprint()

    assert fingerprint() == source.fingerprint() != fingerprint(invention=1)


def test_a_changed_model_is_refused_on_replay_and_with_the_same_command(
    data: Path, base: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(base / "latest", model)
    recipe = _recipe(model, steps=6)
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", recipe, observer=stop_after(3))
    from safetensors.torch import save_file

    weights = load_file(model / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, model / "model.safetensors")
    with pytest.raises(TrainingError, match="changed since"):
        train(data, tmp_path / "run", recipe)
    settled = load_recipe(tmp_path / "run" / "recipe.toml")
    with pytest.raises(TrainingError, match="not the model any more") as error:
        train(data, tmp_path / "new", settled)
    assert "init_fingerprint=null" in (error.value.hint or "")
    assert not (tmp_path / "new").exists()
    assert train(data, tmp_path / "run").steps == 6


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.hidden_size=64", r"model\.hidden_size is 64, there it is 32"),
        ("model.num_hidden_layers=2", "num_hidden_layers"),
        ("model.tie_word_embeddings=false", "tie_word_embeddings"),
        ("model.vocab_size=4000", "vocab_size is 4000"),
        ("model.rms_norm_eps=0.1", "rms_norm_eps"),
        ("model.max_position_embeddings=16", "less than the 64"),
        ("batch.context_length=65", "positions for 64"),
    ],
)
def test_settings_that_contradict_the_models_shape_are_refused_by_name(
    data: Path, tmp_path: Path, setting: str, words: str
) -> None:
    model = _save(tmp_path / "model", load_tokenizer(data))
    with pytest.raises(ConfigError, match=words) as error:
        train(data, tmp_path / "run", _recipe(model, setting))
    assert error.value.hint
    assert not (tmp_path / "run").exists()


def test_settings_that_say_what_the_model_is_are_no_contradiction(
    data: Path, tmp_path: Path
) -> None:
    model = _save(tmp_path / "model", load_tokenizer(data))
    same = _recipe(model, "model.hidden_size=32", "model.residual_dropout=0.5")
    config = InitialModel.open(same, load_tokenizer(data)).config
    assert (config.hidden_size, config.residual_dropout) == (32, 0.5)


@pytest.mark.parametrize(
    ("scaling", "settings", "reaches"),
    [
        ({"rope_type": "linear", "factor": 2.0}, [], 96),
        ({"rope_type": "dynamic", "factor": 2.0}, [], 64),
        ({"rope_type": "yarn", "factor": 2.0}, [], 96),
        (None, ["model.max_position_embeddings=96", "model.rope_theta=50000"], 96),
    ],
)
def test_a_longer_context_is_taken_where_scaling_or_settings_say_so(
    data: Path,
    tmp_path: Path,
    scaling: dict[str, object] | None,
    settings: list[str],
    reaches: int,
) -> None:
    tokenizer = load_tokenizer(data)
    model = _save(tmp_path / "model", tokenizer, rope_scaling=scaling)
    start = InitialModel.open(_recipe(model, "batch.context_length=96", *settings), tokenizer)
    assert start.config.max_position_embeddings == reaches
    ids = torch.arange(60)[None]
    if not settings:  # the angles of what it knows stay as they were
        torch.testing.assert_close(start.build().eval()(ids), llamita.load(model).logits(ids))


def test_yarn_that_does_not_say_its_original_context_keeps_it() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0}
    config = preset("tiny", 40, max_position_embeddings=64, rope_scaling=scaling)
    longer = with_context(_recipe(Path("model"), "batch.context_length=200"), config)
    assert longer.max_position_embeddings == 200
    assert longer.rope_scaling == {**scaling, "original_max_position_embeddings": 64}


def test_the_way_out_of_a_short_context_works(data: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(data)
    model = _save(tmp_path / "model", tokenizer)
    with pytest.raises(ConfigError) as error:
        InitialModel.open(_recipe(model, "batch.context_length=100"), tokenizer)
    words = (error.value.hint or "").split("--set ")[2:]
    ways = [word.strip().strip("'") for word in words]
    assert len(ways) == 2
    start = InitialModel.open(_recipe(model, "batch.context_length=100", *ways), tokenizer)
    assert start.config.max_position_embeddings == 100
    assert start.config.rope_type == "yarn"


@pytest.mark.parametrize("tied", [True, False])
def test_an_extended_vocabulary_grows_both_tables(data: Path, tmp_path: Path, tied: bool) -> None:
    old = load_tokenizer(data)
    model = _save(tmp_path / "model", old, tie_word_embeddings=tied)
    added = [(f"<|extra_{number}|>", True) for number in range(6)]
    new = with_added(old, tmp_path / "tokenizer", *added, ("every small tree", False))
    start = InitialModel.open(_recipe(model), new)
    built, before = start.build(), llamita.load(model).model
    assert start.config.vocab_size == new.vocab_size == old.vocab_size + 7
    assert (built.lm_head.weight is built.model.embed_tokens.weight) == tied
    pieces = old.encode("every small tree")
    for ours, theirs in (
        (built.lm_head.weight, before.lm_head.weight),
        (built.model.embed_tokens.weight, before.model.embed_tokens.weight),
    ):
        assert torch.equal(ours[: old.vocab_size], theirs[: old.vocab_size])
        torch.testing.assert_close(ours[-1], theirs[pieces].mean(0))
        torch.testing.assert_close(ours[old.vocab_size], theirs[: old.vocab_size].mean(0))


def test_a_run_with_another_tokenizer_says_what_became_of_the_tokens(
    data: Path, base: Path, tmp_path: Path
) -> None:
    prepare([data.parent / "texts"], tmp_path / "data", tokenizer="spm:300")
    said: list[str] = []
    observer = Observer(say=said.append, on_step=lambda *args: None)
    train(tmp_path / "data", tmp_path / "run", _recipe(base), observer=observer)
    [line] = [line for line in said if "keep their row" in line]
    assert "is not the model's: of 300 tokens" in line
    tokenizer = load_tokenizer(tmp_path / "data")
    lm = llamita.load(tmp_path / "run")
    assert lm.config.vocab_size == 300
    assert lm.config.eos_token_id == tokenizer.eos_token_id
    train(tmp_path / "data", tmp_path / "run")


def test_vocabularies_without_a_common_token_make_no_sense(data: Path, tmp_path: Path) -> None:
    def characters(name: str, letters: str) -> Tokenizer:
        controls = ["<|user|>", "<|assistant|>", "<|end|>"]
        content = {"type": "char", "itos": [*controls, *letters], "special_tokens": controls}
        (tmp_path / name).write_text(json.dumps(content))
        return load_tokenizer(tmp_path / name)

    model = _save(tmp_path / "model", characters("latin.json", "abc "))
    with pytest.raises(TrainingError, match="no token in common") as error:
        InitialModel.open(_recipe(model), characters("greek.json", "αβγ"))
    assert "--tokenizer" in (error.value.hint or "")


def test_the_models_own_ends_stay_where_the_tokens_are_the_same(data: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(data)
    eos = tokenizer.eos_token_id
    assert eos is not None
    model = _save(tmp_path / "model", tokenizer, eos_token_id=(eos, 5), bos_token_id=7)
    config = InitialModel.open(_recipe(model), tokenizer).config
    assert (config.eos_token_ids, config.bos_token_id) == ((eos, 5), 7)
    assert config.vocab_size == tokenizer.vocab_size + 4


def test_a_model_without_a_tokenizer_is_refused_with_the_way_out(
    data: Path, tmp_path: Path
) -> None:
    model = _save(tmp_path / "model", load_tokenizer(data))
    for path in model.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(LlamitaError, match="without a tokenizer") as error:
        train(data, tmp_path / "run", _recipe(model))
    assert "--tokenizer PATH" in (error.value.hint or "")


def test_the_model_it_began_with_and_a_run_do_not_touch_each_other(
    data: Path, base: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(base / "latest", model)
    file = model / "model.safetensors"
    before = file.read_bytes()
    train(data, tmp_path / "run", _recipe(model))
    assert file.read_bytes() == before
    built = InitialModel.open(_recipe(model), load_tokenizer(data)).build()
    with file.open("r+b") as opened:  # in place, as a download would
        opened.seek(len(before) // 2)
        opened.write(bytes(len(before) - len(before) // 2))
    weights = load_file(base / "latest" / "model.safetensors")
    assert all(torch.equal(weights[name], built.state_dict()[name]) for name in weights)


@pytest.mark.parametrize(
    ("name", "place"), [("gguf", "model.gguf"), ("hermes", "model.pt"), ("meta", "meta")]
)
def test_a_model_of_any_format_is_what_loading_it_gives(
    data: Path, tmp_path: Path, name: str, place: str
) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (data.parent / "texts").glob("*.txt")]
    source = _save(tmp_path / "source", train_tokenizer(texts, "spm:300"), num_key_value_heads=2)
    model = tmp_path / "models" / place
    model.parent.mkdir()
    assert run(["convert", str(source), str(model), "--to", name, "--no-verify"]) == 0
    start = InitialModel.open(_recipe(model), tokenizer_of(model))
    ids = torch.arange(30)[None]
    assert torch.equal(start.build().eval()(ids), llamita.load(model).logits(ids))
    assert torch.equal(start.build().eval()(ids), llamita.load(source).logits(ids))

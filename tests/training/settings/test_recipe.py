"""Recipes: every setting checked, unknown ones answered with the nearest known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llamita.errors import ConfigError
from llamita.training.settings.lora import Lora
from llamita.training.settings.recipe import Length, Recipe, Source, Teacher
from llamita.training.settings.recipe_file import build_recipe, load_recipe, parse_toml, save_recipe


def test_a_recipe_survives_being_written_and_read(tmp_path: Path) -> None:
    recipe = build_recipe(None, ["optimizer.name=muon", "length.minutes=2.5", "seed=7"], {})
    save_recipe(recipe, tmp_path / "recipe.toml")
    assert load_recipe(tmp_path / "recipe.toml") == recipe


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("optimizer.learning_rat=1", ["optimizer.learning_rat", "learning_rate"]),
        ("optimiser.name=muon", ["optimiser", "optimizer"]),
        ("model.hiden_size=64", ["hiden_size", "hidden_size"]),
        ("batch.sequences=0", ["batch.sequences", "0"]),
        ("optimizer.learning_rate=-1", ["learning_rate", "-1"]),
        ("optimizer.learning_rate=fast", ["learning_rate", "fast"]),
        ("schedule.kind=linear", ["schedule.kind", "linear", "wsd"]),
        ("optimizer.beta1=NaN", ["beta1", "nan"]),
        ('data=[{"path": "a", "wight": 1}]', ["data.0.wight", "'weight'"]),
        ('data=[{"path": "a", "weight": 0}]', ["data.0.weight", "0"]),
        ('data=[{"path": "a", "weight": 1}, {"path": "b"}]', ["'b'", "weight"]),
        ("batch.packing=tight", ["batch.packing", "tight", "documents"]),
        ("nonsense", ["nonsense", "key=value"]),
        ("seed.more=1", ["seed"]),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(assignment: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        build_recipe(None, [assignment], {})
    for word in words:
        assert word in str(error.value)


def test_only_one_length_can_hold() -> None:
    with pytest.raises(ConfigError, match="steps and minutes"):
        build_recipe(None, [], {"length": {"steps": 5, "minutes": 1.0}})


def test_later_sources_override_earlier_ones(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text('[length]\nminutes = 3\n[optimizer]\nlearning_rate = 0.5\nname = "muon"\n')
    recipe = build_recipe(file, ["optimizer.learning_rate=0.25"], {"length": {"steps": 9}})
    assert recipe.length == Length(steps=9)
    assert (recipe.optimizer.learning_rate, recipe.optimizer.name) == (0.25, "muon")


def test_a_set_length_replaces_another_kind_of_length() -> None:
    recipe = build_recipe(None, ["length.tokens=1000"], {"length": {"minutes": 3.0}})
    assert recipe.length == Length(tokens=1000)


@pytest.mark.parametrize("text", ["[length", "seed = 1\nseed = 2", "\x00"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        load_recipe(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load_recipe(tmp_path / "nowhere.toml")


def test_model_fields_override_the_preset() -> None:
    recipe = build_recipe(None, ["model.preset=tiny", "model.num_hidden_layers=5"], {})
    config = recipe.model_shape(300)
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (64, 5, 300)


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="smollm2-135m"):
        Recipe(model={"preset": "huge"}).model_shape(300)


def test_a_context_longer_than_the_model_holds_is_refused() -> None:
    recipe = build_recipe(None, ["model.max_position_embeddings=128"], {})
    with pytest.raises(ConfigError, match="256"):
        recipe.model_shape(300)


def test_where_the_model_comes_from_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('[model]\npreset = "tiny"\nuse_qk_norm = true\n')
    recipe = build_recipe(path, ['init="model"'], {})
    assert (recipe.init, recipe.model) == ("model", {"use_qk_norm": True})
    path.write_text(
        'init = "old"\ninit_fingerprint = "sha256:1"\nmodel = {}\n'
        '[teacher]\nmodel = "big"\nweight = 0.3\nfingerprint = "sha256:2"\n'
    )
    again = build_recipe(path, ['init="new"', 'teacher.model="bigger"'], {})
    assert (again.init, again.init_fingerprint) == ("new", None)
    assert again.teacher == Teacher(model="bigger", weight=0.3)
    for assignments, flags in ((["model.preset=tiny"], {}), ([], {"model": {"preset": "tiny"}})):
        fresh = build_recipe(path, assignments, flags)
        assert (fresh.init, fresh.init_fingerprint) == (None, None)
        assert fresh.model == {"preset": "tiny"}
    kept = build_recipe(path, ["seed=1"], {})
    assert (kept.init, kept.init_fingerprint) == ("old", "sha256:1")
    with pytest.raises(ConfigError, match="preset and init are both given"):
        build_recipe(path, ['init="new"', "model.preset=tiny"], {})


def test_the_documented_settings_are_all_and_their_values_the_defaults(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text(encoding="utf-8")
    shown = page.partition("```toml")[2].partition("```")[0]
    (tmp_path / "shown.toml").write_text(shown, encoding="utf-8")
    assert load_recipe(tmp_path / "shown.toml") == Recipe()
    uncommented = parse_toml(re.sub(r"^# (?=[\w\[])", "", shown, flags=re.MULTILINE))
    for name, field in Recipe.model_fields.items():
        table = {"data": Source, "teacher": Teacher, "lora": Lora}.get(name, field.annotation)
        if name == "data":
            uncommented[name] = uncommented[name][0]
        fields = getattr(table, "model_fields", None)
        assert name in uncommented
        if fields is not None:
            assert uncommented[name].keys() == fields.keys(), name

"""What gives a run's model its shape: a preset, a size, or a model to go on from; one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamita.errors import ConfigError
from llamita.training.settings.recipe import Recipe, Teacher
from llamita.training.settings.recipe_file import build_recipe, load_recipe, save_recipe


def test_a_number_of_parameters_gives_the_shape() -> None:
    recipe = build_recipe(None, ["model.params=1m", "batch.context_length=64"], {})
    config = recipe.model_shape(500, eos_token_id=0)
    assert config.count_parameters() == pytest.approx(1e6, rel=0.03)
    assert (config.vocab_size, config.max_position_embeddings) == (500, 64)
    assert config.eos_token_id == 0


def test_settings_that_are_no_size_go_with_a_number_of_parameters() -> None:
    recipe = build_recipe(
        None, ["model.params=1m", "model.tie_word_embeddings=false", "model.use_qk_norm=true"], {}
    )
    config = recipe.model_shape(500)
    assert config.use_qk_norm
    assert not config.tie_word_embeddings
    assert config.count_parameters() == pytest.approx(1e6, rel=0.03)


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["model.params=1m", "model.preset=tiny"], "preset and params"),
        (["model.params=1m", "init=some/model"], "params and init"),
        (["model.preset=tiny", "init=some/model"], "preset and init"),
        (["model.params=1m", "model.num_hidden_layers=3"], r"model\.num_hidden_layers"),
        (["model.params=much"], "much"),
        (["teacher.weight=0.5"], r"teacher\.model"),
        (["teacher.model=some/model", "teacher.weight=1.5"], r"teacher\.weight is 1\.5"),
        (["teacher.model=some/model", "teacher.temperature=0"], r"teacher\.temperature is 0"),
        (["teacher.model=some/model", "teacher.temprature=2"], "temperature"),
    ],
)
def test_settings_that_contradict_each_other_are_named(assignments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_recipe(None, assignments, {})


def test_init_and_teacher_stand_in_the_written_recipe(tmp_path: Path) -> None:
    teacher = Teacher(model="big", weight=0.7, temperature=3.0, fingerprint="sha256:1")
    recipe = Recipe(init="base", init_fingerprint="sha256:0", teacher=teacher)
    save_recipe(recipe, tmp_path / "recipe.toml")
    assert load_recipe(tmp_path / "recipe.toml") == recipe
    assert recipe.model == {}

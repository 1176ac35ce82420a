"""Whether ranks keep whole models or shards, where a recipe leaves it open."""

from __future__ import annotations

import pytest

from llamita.config import preset
from llamita.training.memory.room import Machine, Room
from llamita.training.ranks.world import World
from llamita.training.records.observer import SILENT, Observer
from llamita.training.settings.recipe import Teacher
from llamita.training.steps.parallel import choose_parallel, decide_parallel
from tests.training.recipes import small_recipe

CONFIG = preset("small", 5000)
PLENTY = Machine(Room(1 << 34, "here"), None, 4)


def test_where_the_memory_of_one_rank_is_too_little_all_have_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(0, 2, 0, 1)
    monkeypatch.setattr(World, "gather", lambda self, own: [own, ("fsdp", "too little")])
    monkeypatch.setattr(Machine, "here", lambda *of: PLENTY)
    said: list[str] = []
    observer = Observer(said.append, SILENT.on_step)
    recipe = small_recipe("batch.sequences=8")
    assert decide_parallel(recipe, CONFIG, observer, world) == "fsdp"
    assert said == ["2 ranks, fsdp (too little, says rank 1); each reads 4 rows a step"]


def test_a_teacher_takes_memory_too() -> None:
    world, recipe = World(0, 4, 0, 4), small_recipe()
    assert choose_parallel(recipe, CONFIG, world, PLENTY)[0] == "ddp"
    taught = recipe.model_copy(update={"teacher": Teacher(model="somewhere")})
    teacher = preset("llama-3-8b", 128256)
    assert choose_parallel(taught, CONFIG, world, PLENTY, teacher)[0] == "fsdp"


def test_whole_models_are_kept_where_they_fit_and_shards_where_they_do_not() -> None:
    world, recipe = World(0, 4, 0, 4), small_recipe()
    little = Machine(Room(1 << 29, "here"), None, 4)
    kind, reason = choose_parallel(recipe, CONFIG, world, PLENTY)
    assert kind == "ddp"
    assert "fits" in reason
    assert choose_parallel(recipe, CONFIG, world, little)[0] == "fsdp"
    asked = small_recipe("machine.parallel=ddp")
    assert choose_parallel(asked, CONFIG, world, little) == ("ddp", "as asked")

"""What a run was begun with: told apart from what it is asked for now, across versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamita.errors import TrainingError
from llamita.training.records.manifest import RunManifest
from llamita.training.settings.recipe import Recipe, Source
from llamita.training.settings.recipe_file import build_recipe
from llamita.training.settings.settling import with_changeable
from tests.training.recipes import small_recipe


def _manifest(requested: dict[str, Any], settled: dict[str, Any]) -> RunManifest:
    return RunManifest(
        llamita_version="0",
        data="data",
        data_fingerprint="sha256:1",
        tokenizer_fingerprint="sha256:2",
        parameters=1,
        requested=requested,
        settled=settled,
    )


def test_a_run_of_an_earlier_version_goes_on_with_the_defaults_of_newer_settings() -> None:
    old = small_recipe().model_dump(mode="json")
    del old["data"], old["batch"]["packing"]
    _manifest(old, old).check_settings(Path("run"), small_recipe(), small_recipe())
    with pytest.raises(TrainingError, match=r"batch\.packing was 'stream' and is now 'documents'"):
        _manifest(old, old).check_settings(
            Path("run"), small_recipe(), small_recipe("batch.packing=documents")
        )


def test_where_the_data_lies_is_no_setting() -> None:
    moved = small_recipe().model_copy(update={"data": (Source(path="elsewhere"),)})
    plain = small_recipe().model_dump(mode="json")
    _manifest(plain, plain).check_settings(Path("run"), moved, moved)


def test_settings_this_version_does_not_know_are_named_as_changed() -> None:
    later = {**Recipe().model_dump(mode="json"), "invention": 3}
    with pytest.raises(TrainingError, match="invention was 3 and is now None"):
        _manifest(later, later).check_settings(Path("run"), Recipe(), None)


def test_what_every_call_may_choose_can_be_asked_for_alone() -> None:
    begun = small_recipe("machine.activation_checkpointing=true", "machine.parallel=fsdp")
    plain = begun.model_dump(mode="json")
    alone = build_recipe(None, ["machine.check_memory=false", "checkpoints.keep=1"], {})
    _manifest(plain, plain).check_settings(Path("run"), begun, alone)
    changed = with_changeable(begun, alone)
    expected = {**plain["machine"], "check_memory": False}
    assert changed.machine.model_dump(mode="json") == expected
    assert changed.checkpoints.keep == 1
    again = with_changeable(begun, small_recipe())
    assert (again.machine.parallel, again.machine.activation_checkpointing) == ("auto", False)
    with pytest.raises(TrainingError, match="was begun with other settings"):
        _manifest(plain, plain).check_settings(Path("run"), begun, Recipe())
    with_another = build_recipe(None, ["machine.check_memory=false", "seed=7"], {})
    with pytest.raises(TrainingError, match="seed was 0 and is now 7"):
        _manifest(plain, plain).check_settings(Path("run"), begun, with_another)

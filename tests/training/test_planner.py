"""Planning on a machine of known speed and a text of known law: the plan keeps to the time, and
says plainly what is too small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamita.data.manifest import Manifest
from llamita.data.prepare import prepare
from llamita.data.training_data import TrainingData
from llamita.errors import DataError, Interrupted, TrainingError
from llamita.training import planner
from llamita.training.forecast import Training, shipped_law
from llamita.training.pilot import Measured, measure
from llamita.training.plan_report import as_json, describe, notes
from llamita.training.planner import Plan, Planner
from llamita.training.recipe import Recipe, Source
from llamita.training.recipe_file import parse_recipe
from llamita.training.scaling import inner_parameters
from llamita.training.speed import step_work
from tests.conftest import write_documents
from tests.training.recipes import small_recipe

SCALE, FLOOR = 0.8, 1.6
STARTUP, LOOK = 2.0, 0.5
OPERATION, VALUE = 2e-11, 2e-9


class Machine:
    """In place of `measure`: a machine and a text whose laws are known."""

    def __init__(self, compiling: float = 20.0, gain: float = 1.0) -> None:
        self.compiling, self.gain = compiling, gain
        self.unique_tokens = 0
        self.runs: list[Recipe] = []

    def __call__(self, sources: Sequence[Source], recipe: Recipe, work: Path) -> Measured:
        manifest = Manifest.load(Path(sources[0].path))
        config = recipe.model_shape(manifest.tokenizer.vocab_size)
        compiled = recipe.machine.compile == "on"
        machine = {"precision": "float32", "device": "cpu", "compile": recipe.machine.compile}
        settled = recipe.machine.model_copy(update=machine)
        tokens = (recipe.length.steps or 0) * recipe.tokens_per_step
        training = Training(inner_parameters(config), tokens, self.unique_tokens)
        self.runs.append(recipe)
        operations, values = step_work(config, recipe)
        return Measured(
            config=config,
            recipe=recipe.model_copy(update={"machine": settled}),
            step_seconds=(OPERATION * operations + VALUE * values)
            / (self.gain if compiled else 1.0),
            startup_seconds=STARTUP + (self.compiling if compiled else 0.0),
            look_seconds=LOOK,
            bits_per_byte=SCALE * shipped_law().relative_loss(training, FLOOR),
            peak_memory=None,
        )


def _plan(
    monkeypatch: pytest.MonkeyPatch,
    data: Path,
    seconds: float,
    *,
    machine: Machine | None = None,
    text_share: float = 1e-4,
) -> Plan:
    return _planner(monkeypatch, data, machine or Machine(), text_share).plan(seconds)


def _planner(
    monkeypatch: pytest.MonkeyPatch, data: Path, machine: Machine, text_share: float = 1e-4
) -> Planner:
    """As if the data were the whole of a text of which they are a share."""
    machine.unique_tokens = round(Manifest.load(data).train.tokens / text_share)
    monkeypatch.setattr(planner, "measure", machine)
    whole = property(lambda self: machine.unique_tokens)
    monkeypatch.setattr(TrainingData, "train_tokens", whole)
    return Planner([Source(path=str(data))], start_seconds=3.0, work=data.parent)


@pytest.mark.parametrize("seconds", [120.0, 3600.0])
def test_the_time_is_used_up_and_not_exceeded(
    monkeypatch: pytest.MonkeyPatch, data: Path, seconds: float
) -> None:
    plan = _plan(monkeypatch, data, seconds)
    assert 0.9 * seconds < plan.seconds <= seconds
    operations, values = step_work(plan.candidate.shape.config, plan.candidate.recipe)
    assert plan.step_seconds == pytest.approx(OPERATION * operations + VALUE * values, rel=0.02)
    looks = plan.candidate.recipe.watch.validations
    beside = 3.0 + STARTUP + looks * LOOK * max(1.0, plan.step_seconds / plan.pilot.step_seconds)
    assert plan.seconds == pytest.approx(beside + plan.steps * plan.step_seconds)


def test_bits_per_byte_are_those_of_the_law_with_the_pilots_scale_and_floor(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    plan = _plan(monkeypatch, data, 600.0)
    expected = SCALE * shipped_law().relative_loss(plan.training, FLOOR)
    assert plan.forecast.bits_per_byte == pytest.approx(expected)
    assert plan.forecast.low < expected < plan.forecast.high


def test_no_other_shape_would_come_to_less(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    plan = _plan(monkeypatch, data, 600.0)
    shapes = planner.Shapes(300, 600.0, plan.training.unique_tokens, 1e11)
    law = shipped_law()
    for shape in shapes.all:
        operations, values = step_work(shape.config, plan.candidate.recipe)
        steps = plan.steps * plan.step_seconds / (OPERATION * operations + VALUE * values)
        tokens = steps * plan.candidate.recipe.tokens_per_step
        other = Training(inner_parameters(shape.config), tokens, plan.training.unique_tokens)
        if other.tokens > 25 * other.parameters:
            continue  # more than it has room for
        assert law.relative_loss(other) > 0.995 * law.relative_loss(plan.training)


def test_a_shape_can_be_chosen_without_a_pilot(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    machine = Machine()
    planned = _plan(monkeypatch, data, 600.0).candidate
    chosen = _planner(monkeypatch, data, machine).choose(600.0)
    assert chosen.shape == planned.shape
    assert all(recipe.length.steps == machine.runs[0].length.steps for recipe in machine.runs)


def test_more_time_takes_a_larger_model_and_more_tokens(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    short, long = (_plan(monkeypatch, data, seconds) for seconds in (120.0, 36_000.0))
    assert long.parameters > short.parameters
    assert long.training.tokens > short.training.tokens
    assert long.forecast.bits_per_byte < short.forecast.bits_per_byte
    assert long.candidate.recipe.tokens_per_step >= short.candidate.recipe.tokens_per_step


def test_a_text_too_small_for_the_time_ends_the_run_early_and_is_said(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    plan = _plan(monkeypatch, data, 600.0, text_share=1.0)
    assert plan.training.epochs < 30
    more = replace(plan.training, tokens=1.5 * plan.training.tokens)
    assert shipped_law().relative_loss(more) > shipped_law().relative_loss(plan.training)
    assert plan.seconds < 300
    assert any("text is too small for this time" in note for note in notes(plan))


def test_a_text_that_is_read_often_is_said_to_be_small(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    plan = _plan(monkeypatch, data, 120.0)
    assert not any("small for this time" in note for note in notes(plan))
    often = replace(plan.training, unique_tokens=plan.training.tokens / 8)
    worth = shipped_law().effective_tokens(often)
    plan = replace(plan, training=often, effective_tokens=worth)
    assert any(
        f"read 8.0 times, which is worth {worth / often.tokens:.0%}" in n for n in notes(plan)
    )


def test_a_time_too_small_for_the_text_is_said(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    plan = _plan(monkeypatch, data, 120.0, text_share=1e-6)
    assert any("time is small for this text" in note for note in notes(plan))
    hardly = _plan(monkeypatch, data, 8.0)
    assert any("time is too small" in note for note in notes(hardly))
    with pytest.raises(TrainingError, match="too short"):
        _plan(monkeypatch, data, 4.0)


def test_compilation_is_planned_where_it_wins_itself_back(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    monkeypatch.setattr(planner, "_has_compiler", lambda device: True)
    gaining = _plan(monkeypatch, data, 3600.0, machine=Machine(gain=1.5))
    assert gaining.candidate.recipe.machine.compile == "on"
    assert gaining.seconds <= 3600.0
    hardly = _plan(monkeypatch, data, 3600.0, machine=Machine(compiling=30, gain=1.001))
    assert hardly.candidate.recipe.machine.compile == "off"
    short = Machine(gain=1.5)
    _plan(monkeypatch, data, 120.0, machine=short)
    assert all(recipe.machine.compile == "off" for recipe in short.runs)


def test_the_recipe_is_one_and_holds_what_was_planned(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    plan = _plan(monkeypatch, data, 600.0)
    values = as_json(plan)
    recipe = parse_recipe(values["recipe"], "the plan")
    assert recipe.length.steps == values["steps"] == plan.steps
    assert values["tokens"] == plan.steps * recipe.tokens_per_step
    assert recipe.optimizer.learning_rate == values["learning_rate"]
    assert recipe.model_shape(300).count_parameters() == values["parameters"]
    assert values["ram_gb"] > 0
    assert values["disk_gb"] > 0
    assert {name for name, _ in describe(plan)} >= {"model", "training", "time", "bits per byte"}


def test_data_that_holds_nothing_out_cannot_be_planned_for(tmp_path: Path) -> None:
    texts = write_documents(tmp_path / "texts", 5, seed=0)
    prepare([texts], tmp_path / "data", tokenizer="bpe:300", val_fraction=0)
    with pytest.raises(DataError, match="holds no text out"):
        Planner([Source(path=str(tmp_path / "data"))], work=tmp_path)


def test_ctrl_c_in_a_pilot_is_no_stopped_run(
    monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path
) -> None:
    def stopped(*arguments: Any, **settings: Any) -> None:
        raise Interrupted("stopped after step 3 of 6; everything is saved.")

    monkeypatch.setattr("llamita.training.pilot.train", stopped)
    with pytest.raises(KeyboardInterrupt):
        measure([Source(path=str(data))], small_recipe(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_measured_is_what_a_run_did(data: Path, tmp_path: Path) -> None:
    measured = measure([Source(path=str(data))], small_recipe("watch.validations=1"), tmp_path)
    assert measured.tokens == 6 * 4 * 32
    assert 0 < measured.step_seconds < measured.startup_seconds + measured.look_seconds + 5
    assert measured.bits_per_byte is not None
    assert 1 < measured.bits_per_byte < 8
    assert measured.recipe.machine.device != "auto"
    assert list(tmp_path.iterdir()) == []

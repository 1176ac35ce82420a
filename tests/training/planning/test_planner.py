"""Planning on a machine of known speed and a text of known law: the plan keeps to the time, and
says plainly what is too small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from llamita.data.folder import DataFolder
from llamita.data.manifest import Manifest
from llamita.data.prepare import prepare
from llamita.data.training_data import TrainingData
from llamita.errors import DataError, TrainingError
from llamita.training.planning import planner
from llamita.training.planning.forecast import Training, shipped_law
from llamita.training.planning.pilot import Measured
from llamita.training.planning.plan import Plan
from llamita.training.planning.planner import Planner
from llamita.training.planning.report import as_json, describe, notes
from llamita.training.planning.speed import step_work
from llamita.training.settings.learning_rates import inner_parameters
from llamita.training.settings.recipe import Recipe, Source
from llamita.training.settings.recipe_file import parse_recipe
from tests.conftest import write_documents

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
    monkeypatch: pytest.MonkeyPatch,
    data: Path,
    machine: Machine,
    text_share: float = 1e-4,
    measure_seconds: float = planner.MEASURE_SECONDS,
) -> Planner:
    """As if the data were the whole of a text of which they are a share."""
    machine.unique_tokens = round(Manifest.load(data).train.tokens / text_share)
    monkeypatch.setattr(planner, "measure", machine)
    whole = property(lambda self: machine.unique_tokens)
    monkeypatch.setattr(TrainingData, "train_tokens", whole)
    return Planner(
        [Source(path=str(data))],
        start_seconds=3.0,
        measure_seconds=measure_seconds,
        work=data.parent,
    )


@pytest.mark.parametrize("seconds", [120.0, 3600.0])
def test_the_time_is_used_up_and_not_exceeded(
    monkeypatch: pytest.MonkeyPatch, data: Path, seconds: float
) -> None:
    plan = _plan(monkeypatch, data, seconds)
    assert 0.9 * seconds < plan.seconds <= seconds
    operations, values = step_work(plan.candidate.shape.config, plan.candidate.recipe)
    assert plan.step_seconds == pytest.approx(OPERATION * operations + VALUE * values, rel=0.02)
    looks = plan.candidate.recipe.watch.validations
    token = plan.step_seconds / plan.candidate.recipe.tokens_per_step
    slower = token / (plan.pilot.step_seconds / plan.pilot.recipe.tokens_per_step)
    beside = 3.0 + STARTUP + looks * LOOK * max(1.0, slower)
    assert plan.seconds == pytest.approx(beside + plan.steps * plan.step_seconds, rel=1e-3)


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
    plan = _plan(monkeypatch, data, 600.0, text_share=0.1)
    assert plan.training.epochs < 30
    more = replace(plan.training, tokens=1.5 * plan.training.tokens)
    assert shipped_law().relative_loss(more) > shipped_law().relative_loss(plan.training)
    assert plan.seconds < 300
    assert any("text is too small for this time" in note for note in notes(plan))


def test_a_tiny_text_is_still_trained_on_and_said_to_be_beyond_the_law(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    plan = _plan(monkeypatch, data, 600.0, text_share=1.0)
    assert 100 <= plan.steps < plan.most_steps
    law = shipped_law()
    for shape in planner.Shapes(300, 600.0, plan.training.unique_tokens, 1e11).all:
        other = replace(plan.training, parameters=inner_parameters(shape.config))
        if other.tokens <= 25 * other.parameters:
            assert law.relative_loss(other) > 0.999 * law.relative_loss(plan.training)
    said = notes(plan)
    assert any("fewer than any" in note for note in said)
    assert not any("time is too small" in note for note in said)
    large = _plan(monkeypatch, data, 120.0)
    assert not any("fewer than any" in note for note in notes(large))


def test_a_run_that_the_text_ends_early_is_not_compiled_and_seldom_validated(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    monkeypatch.setattr(planner, "_has_compiler", lambda device: True)
    machine = Machine(compiling=100.0, gain=1.5)
    plan = _plan(monkeypatch, data, 3600.0, machine=machine, text_share=1.0)
    assert plan.steps < plan.most_steps
    assert plan.candidate.recipe.machine.compile == "off"
    looks = plan.candidate.recipe.watch.validations
    assert looks == 1 or looks * LOOK <= 0.05 * plan.seconds


def test_few_steps_are_no_time_too_small_where_the_text_ends_them(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    plan = _plan(monkeypatch, data, 600.0, text_share=0.1)
    few = replace(plan, candidate=replace(plan.candidate, steps=60))
    assert not any("time is too small" in note for note in notes(few))
    assert any("time is too small" in note for note in notes(replace(few, most_steps=60)))


def test_a_pilot_is_no_shorter_than_can_be_continued(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    machine = Machine()
    late = _planner(monkeypatch, data, machine, measure_seconds=-5.0)
    plan = late.plan(600.0)
    assert plan.pilot.recipe.length.steps == 40
    assert plan.pilot.config.count_parameters() <= plan.parameters


def test_what_a_plan_says_of_the_disk_and_of_its_own_cap(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    planned = _plan(monkeypatch, data, 120.0)
    plan = replace(planned, candidate=replace(planned.candidate, is_capped=False))
    assert not any("of disk" in note or "by the rule" in note for note in notes(plan))
    assert any("of disk" in note for note in notes(replace(plan, disk_bytes=1 << 60)))
    capped = replace(plan, candidate=replace(plan.candidate, is_capped=True))
    assert any("room for so many tokens" in note for note in notes(capped))


def test_the_data_is_checked_once(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    checked: list[Path] = []
    monkeypatch.setattr(DataFolder, "check_content", lambda self: checked.append(self.path))
    Planner([Source(path=str(data))], measure_seconds=0.1, work=data.parent).choose(600.0)
    assert len(checked) == 1


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

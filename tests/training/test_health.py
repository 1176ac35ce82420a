"""Whole runs with steps that are not worth taking: skipped, logged, and too many of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from llamita.data.loader import Batch
from llamita.errors import Interrupted, TrainingError
from llamita.training import looking
from llamita.training import trainer as trainer_module
from llamita.training import validation as validation_module
from llamita.training.health import all_finite
from llamita.training.ranks.world import World
from llamita.training.records.metrics import read_metrics
from llamita.training.records.observer import SILENT, Observer
from llamita.training.run import train
from llamita.training.steps.step import LossSum, StepResult, accumulate_gradients
from llamita.training.trainer import Trainer
from tests.training.recipes import small_recipe
from tests.training.runs import are_same, metrics_of, weights_of

# The loss of chosen steps is multiplied.
Factor = Callable[[Sequence[Batch]], float]


def _multiply_losses(monkeypatch: pytest.MonkeyPatch, factor: Factor) -> None:
    """Multiply the loss, and so the gradients, of a step by what `factor` makes of its batches."""

    def scaled(
        loss_sum: LossSum, batches: Sequence[Batch], device: torch.device, world: World
    ) -> StepResult:
        by = factor(batches)

        def multiplied(*inputs: Any) -> torch.Tensor:
            return loss_sum(*inputs) * by

        return accumulate_gradients(multiplied, batches, device, world)

    monkeypatch.setattr(trainer_module, "accumulate_gradients", scaled)


def _at_steps(*steps: int, by: float = math.nan) -> Factor:
    taken = iter(range(1, 1_000_000))
    return lambda batches: by if next(taken) in steps else 1.0


def _by_content(by: float) -> Factor:
    """Always the same batches, whenever they are drawn."""
    return lambda batches: by if int(batches[0].input_ids.sum()) % 5 == 0 else 1.0


def test_a_bad_step_changes_neither_weights_nor_optimizer_and_is_told(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _multiply_losses(monkeypatch, _at_steps(4))
    changed: list[bool] = []
    real = Trainer.take_step

    def watched(trainer: Trainer) -> dict[str, Any]:
        def state() -> list[torch.Tensor]:
            moments = [v for o in trainer.optimizers for s in o.state.values() for v in s.values()]
            return [t.detach().clone() for t in [*trainer.model.parameters(), *moments]]

        before, position = state(), trainer.loader.state_dict()
        values = real(trainer)
        after = state()
        changed.append(
            len(before) != len(after)
            or not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        )
        assert trainer.loader.state_dict() != position
        assert all(parameter.grad is None for parameter in trainer.model.parameters())
        return values

    monkeypatch.setattr(Trainer, "take_step", watched)
    said: list[str] = []
    observer = Observer(say=said.append, on_step=SILENT.on_step)
    recipe = small_recipe("optimizer.weight_decay=0.5", "watch.log_every=100")
    train(data, tmp_path / "run", recipe, observer=observer)
    assert changed == [True, True, True, False, True, True]
    assert [line for line in said if "skipped" in line] == [
        "step 4 skipped: loss nan, gradient norm nan"
    ]
    skipped = [line for line in metrics_of(tmp_path / "run") if "skipped" in line]
    assert [(line["step"], line["skipped"], line["reason"]) for line in skipped] == [
        (4, "nonfinite", "loss nan, gradient norm nan")
    ]
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text


def test_a_run_with_spikes_resumes_to_the_bit(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _multiply_losses(monkeypatch, _by_content(1e4))
    recipe = small_recipe("model.residual_dropout=0.1", "watch.validations=4", steps=40)
    train(data, tmp_path / "whole", recipe)
    for step in (21, 33):

        def stop(now: int, *rest: Any, at: int = step) -> None:
            if now == at:
                signal_self()

        with pytest.raises(Interrupted):
            train(data, tmp_path / "parts", recipe, observer=Observer(lambda text: None, stop))
    train(data, tmp_path / "parts", recipe)
    spikes = [
        line["step"] for line in metrics_of(tmp_path / "whole") if line.get("skipped") == "spike"
    ]
    assert [step for step in spikes if step > 21]
    assert metrics_of(tmp_path / "whole") == metrics_of(tmp_path / "parts")
    assert are_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))


def signal_self() -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGINT)


def test_nothing_but_bad_steps_ends_the_run_with_the_last_good_checkpoint_whole(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("watch.validations=4", "health.stop_after=3")
    train(data, tmp_path / "whole", small_recipe(*settings, steps=12))
    _multiply_losses(monkeypatch, _at_steps(*range(7, 13)))
    with pytest.raises(TrainingError, match=r"last 3 steps were all bad.*at step 9") as error:
        train(data, tmp_path / "run", small_recipe(*settings, steps=12))
    assert "optimizer.learning_rate" in (error.value.hint or "")
    assert all_finite(weights_of(tmp_path / "run").values())
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines if "skipped" in line] == [7, 8, 9]
    monkeypatch.setattr(trainer_module, "accumulate_gradients", accumulate_gradients)
    train(data, tmp_path / "run", small_recipe(*settings, steps=12))
    assert are_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "run"))


def test_a_save_waits_for_a_loss_that_is_a_number(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _multiply_losses(monkeypatch, _at_steps(3))
    train(data, tmp_path / "run", small_recipe("watch.validations=2", steps=6))
    checkpoints = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert checkpoints == {"step-0000004", "step-0000006"}


def test_a_run_whose_last_step_is_no_number_is_saved_and_finished(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    _multiply_losses(monkeypatch, _at_steps(6))
    train(data, run, small_recipe("watch.validations=2"))
    newest = max(path.name for path in (run / "checkpoints").iterdir())
    assert newest == "step-0000006"
    assert all_finite(weights_of(run).values())
    assert [line["step"] for line in metrics_of(run) if "validation_loss" in line] == [3, 6]
    before = metrics_of(run)
    assert train(data, run).was_finished
    assert metrics_of(run) == before


def test_ctrl_c_after_a_bad_step_says_that_it_is_not_saved(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _multiply_losses(monkeypatch, _at_steps(4, 5))

    def stop(now: int, *rest: Any) -> None:
        if now == 5:
            signal_self()

    with pytest.raises(Interrupted, match="last steps are not saved"):
        train(data, tmp_path / "run", small_recipe(), observer=Observer(lambda text: None, stop))
    checkpoints = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert checkpoints == {"step-0000003"}


@pytest.mark.parametrize("broken_after", [5, 6])  # where only a save is due, and at a validation
def test_weights_that_an_update_broke_are_never_saved(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_after: int
) -> None:
    real = Trainer.take_step

    def breaking(trainer: Trainer) -> dict[str, Any]:
        values = real(trainer)
        if trainer.step == broken_after:
            with torch.no_grad():
                trainer.model.model.norm.weight[0] = math.inf
        return values

    monkeypatch.setattr(Trainer, "take_step", breaking)
    with pytest.raises(TrainingError, match=f"infinities or NaN after step {broken_after}"):
        train(data, tmp_path / "run", small_recipe("checkpoints.every_minutes=1e-9"))
    assert all_finite(weights_of(tmp_path / "run").values())
    newest = max(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert newest == f"step-{broken_after - 1:07d}"


def test_a_validation_loss_that_is_no_number_ends_the_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "validate", _no_number)
    with pytest.raises(TrainingError, match="validation loss is nan after step 3"):
        train(data, tmp_path / "run", small_recipe())
    assert not (tmp_path / "run" / "latest").exists()


def _no_number(*args: Any) -> Any:
    from llamita.training.validation import Validation

    return Validation(math.nan, math.nan, {})


def test_held_out_text_without_a_label_is_not_taken_for_a_loss_of_zero(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = validation_module.sequential_batches

    def unlabelled(*arguments: Any) -> list[Batch]:
        return [
            replace(batch, labels=torch.full_like(batch.labels, -100)) for batch in real(*arguments)
        ]

    monkeypatch.setattr(validation_module, "sequential_batches", unlabelled)
    said: list[str] = []
    observer = Observer(say=said.append, on_step=SILENT.on_step)
    train(data, tmp_path / "run", small_recipe(), observer=observer)
    assert "no held-out token is labelled: nothing is validated" in said
    assert not [line for line in metrics_of(tmp_path / "run") if "validation_loss" in line]
    assert not (tmp_path / "run" / "best").exists()


@pytest.mark.parametrize("shape", [(), ("model.tie_word_embeddings=false",)])
@pytest.mark.parametrize("preset", ["tiny", "demo"])
def test_a_fresh_run_starts_near_the_logarithm_of_its_vocabulary(
    data: Path, tmp_path: Path, preset: str, shape: tuple[str, ...]
) -> None:
    train(data, tmp_path / "run", small_recipe(f"model.preset={preset}", *shape, steps=1))
    first = metrics_of(tmp_path / "run")[0]
    assert abs(first["loss"] - math.log(300)) < 0.3


def test_validation_every_so_many_steps_and_at_the_end(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe("watch.validate_every=2", steps=5))
    steps = [line["step"] for line in metrics_of(tmp_path / "run") if "validation_loss" in line]
    assert steps == [2, 4, 5]


def test_settings_of_a_run_from_before_there_was_a_guard_still_load(
    data: Path, tmp_path: Path
) -> None:
    import re

    run = tmp_path / "run"
    train(data, run, small_recipe())
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(re.sub(r"\[health\]\n(.+\n)+", "", recipe))
    manifest = json.loads((run / "manifest.json").read_text())
    for settings in (manifest["settled"], manifest["requested"]):
        del settings["health"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    for path in (run / "checkpoints").glob("*/complete.json"):
        complete = json.loads(path.read_text())
        del complete["progress"]["health"]
        path.write_text(json.dumps(complete))
    assert train(data, run).was_finished

"""Steps that are not worth taking: judged, skipped, logged, and too many of them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from llamita.data.loader import Batch
from llamita.errors import ConfigError, Interrupted, TrainingError
from llamita.training import trainer as trainer_module
from llamita.training import validation as validation_module
from llamita.training.health import HealthGuard, all_finite
from llamita.training.metrics import OF_THE_MACHINE, read_metrics
from llamita.training.observer import SILENT, Observer
from llamita.training.recipe import Health
from llamita.training.run import train
from llamita.training.step import LossSum, StepResult, accumulate_gradients
from llamita.training.trainer import Trainer
from tests.training.recipes import small_recipe

USUAL = 0.5


def _guard(warmed_up: int = 20, **settings: Any) -> HealthGuard:
    guard = HealthGuard(Health(**settings), clip_norm=1.0)
    for _ in range(warmed_up):
        assert guard.judge(3.0, USUAL) is None
    return guard


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0)])
def test_a_number_that_is_none_is_bad_from_the_first_step_on(loss: float, norm: float) -> None:
    bad = _guard(0).judge(loss, norm)
    assert bad is not None
    assert bad.kind == "nonfinite"


def test_a_gradient_out_of_proportion_is_a_spike_and_its_values_are_told() -> None:
    guard = _guard()
    assert guard.judge(3.0, 9 * USUAL) is None
    bad = guard.judge(4.25, 12 * USUAL)
    assert bad is not None
    assert bad.kind == "spike"
    assert bad.text == "gradient norm 6, 12 times the usual 0.5, loss 4.25"


def test_nothing_is_a_spike_before_there_is_a_usual_norm() -> None:
    assert _guard(8).judge(3.0, 1e6) is None


def test_a_spike_does_not_become_usual() -> None:
    guard = _guard(stop_after=1000)
    assert all(guard.judge(3.0, 100.0) for _ in range(200))
    assert guard.judge(3.0, USUAL) is None


def test_gradients_that_are_not_even_clipped_are_no_spike() -> None:
    guard = HealthGuard(Health(), clip_norm=1.0)
    for _ in range(20):
        guard.judge(0.01, 0.001)
    assert guard.judge(0.02, 0.9) is None
    assert guard.judge(0.02, 1.1) is not None


def test_a_loss_that_leaps_up_is_a_spike_and_its_values_are_told() -> None:
    guard = _guard()
    assert guard.judge(4.4, USUAL) is None
    bad = guard.judge(4.75, USUAL)
    assert bad is not None
    assert bad.kind == "spike"
    assert bad.text == "loss 4.75, 1.75 above the usual 3, gradient norm 0.5"
    assert guard.judge(0.1, USUAL) is None


@pytest.mark.parametrize("spread", [0.02, 0.3, 1.0])
def test_a_noisy_loss_that_falls_or_creeps_up_is_no_spike(spread: float) -> None:
    guard, noise = HealthGuard(Health(), clip_norm=1.0), random.Random(0)
    trend = [10.0 - 0.02 * step for step in range(400)] + [2.0 + 0.02 * step for step in range(200)]
    assert not any(guard.judge(loss + noise.gauss(0, spread), USUAL) for loss in trend)


def test_losses_that_differ_much_leave_room_for_more() -> None:
    guard = HealthGuard(Health(), clip_norm=1.0)
    for step in range(32):
        guard.judge(2.0 + step % 3, USUAL)  # 2, 3, 4: a deviation of 1
    assert guard.judge(12.5, USUAL) is None
    assert guard.judge(13.5, USUAL) is not None


def test_a_state_without_losses_judges_gradients_at_once_and_losses_later() -> None:
    guard = HealthGuard(Health(), clip_norm=1.0)
    guard.load_state_dict({"norms": [USUAL] * 20, "streak": 0})
    assert guard.judge(3.0, 12 * USUAL) is not None
    assert guard.judge(30.0, USUAL) is None


def test_a_factor_of_zero_turns_spikes_off_but_not_numbers_that_are_none() -> None:
    guard = _guard(spike_factor=0)
    assert guard.judge(1e9, 1e9) is None
    assert guard.judge(math.nan, 1.0) is not None


def test_a_factor_that_would_skip_half_of_all_steps_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"spike_factor is 0\.5.*above 1"):
        small_recipe("health.spike_factor=0.5")


def test_many_bad_steps_in_a_row_end_the_run_and_a_good_one_clears_them() -> None:
    guard = _guard(stop_after=3)
    for norm in (50.0, 50.0, USUAL, 50.0, 50.0):
        guard.judge(3.0, norm)
        guard.check(7)
    guard.judge(3.0, 50.0)
    with pytest.raises(TrainingError, match=r"last 3 steps were all bad: gradient norm 50.*step 8"):
        guard.check(8)


def test_without_skipping_the_first_number_that_is_none_ends_the_run() -> None:
    guard = _guard(skip_nonfinite=False)
    guard.judge(3.0, 50.0)
    guard.check(1)
    guard.judge(math.nan, 1.0)
    with pytest.raises(TrainingError, match="loss nan"):
        guard.check(2)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([2.9, 3.0, 3.3, 5.0, 9.0]),
            st.sampled_from([0.1, 0.5, 0.9, 3.0, 40.0, math.nan]),
        ),
        max_size=120,
    ),
    cut=st.integers(0, 120),
)
def test_a_guard_goes_on_exactly_from_its_state_as_json(
    steps: list[tuple[float, float]], cut: int
) -> None:
    whole, part = (HealthGuard(Health(), clip_norm=1.0) for _ in range(2))
    for step in steps[:cut]:
        part.judge(*step)
    again = HealthGuard(Health(), clip_norm=1.0)
    again.load_state_dict(json.loads(json.dumps(part.state_dict())))
    judged = [whole.judge(*step) for step in steps]
    assert [again.judge(*step) for step in steps[cut:]] == judged[cut:]
    assert again.streak == whole.streak


def test_all_finite_is_not_misled_by_sums_that_overflow() -> None:
    large = torch.full((100,), 3e38)
    assert all_finite([large, torch.zeros(0), torch.arange(3), large.bfloat16()])
    for wrong in (math.nan, math.inf, -math.inf):
        broken = torch.ones(5, 5)
        broken[2, 3] = wrong
        assert not all_finite([large, broken])


# Whole runs, in which the loss of chosen steps is multiplied.

Factor = Callable[[Sequence[Batch]], float]


def _multiply_losses(monkeypatch: pytest.MonkeyPatch, factor: Factor) -> None:
    """Multiply the loss, and so the gradients, of a step by what `factor` makes of its batches."""

    def scaled(loss_sum: LossSum, batches: Sequence[Batch], device: torch.device) -> StepResult:
        by = factor(batches)

        def multiplied(*inputs: Any) -> torch.Tensor:
            return loss_sum(*inputs) * by

        return accumulate_gradients(multiplied, batches, device)

    monkeypatch.setattr(trainer_module, "accumulate_gradients", scaled)


def _at_steps(*steps: int, by: float = math.nan) -> Factor:
    taken = iter(range(1, 1_000_000))
    return lambda batches: by if next(taken) in steps else 1.0


def _by_content(by: float) -> Factor:
    """Always the same batches, whenever they are drawn."""
    return lambda batches: by if int(batches[0].input_ids.sum()) % 5 == 0 else 1.0


def _weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "latest" / "model.safetensors")


def _same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def _log(run: Path) -> list[dict[str, Any]]:
    lines = read_metrics(run / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k not in OF_THE_MACHINE} for line in lines]


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
    skipped = [line for line in _log(tmp_path / "run") if "skipped" in line]
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
    spikes = [line["step"] for line in _log(tmp_path / "whole") if line.get("skipped") == "spike"]
    assert [step for step in spikes if step > 21]
    assert _log(tmp_path / "whole") == _log(tmp_path / "parts")
    assert _same(_weights(tmp_path / "whole"), _weights(tmp_path / "parts"))


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
    assert all_finite(_weights(tmp_path / "run").values())
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines if "skipped" in line] == [7, 8, 9]
    monkeypatch.setattr(trainer_module, "accumulate_gradients", accumulate_gradients)
    train(data, tmp_path / "run", small_recipe(*settings, steps=12))
    assert _same(_weights(tmp_path / "whole"), _weights(tmp_path / "run"))


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
    assert all_finite(_weights(run).values())
    assert [line["step"] for line in _log(run) if "validation_loss" in line] == [3, 6]
    before = _log(run)
    assert train(data, run).was_finished
    assert _log(run) == before


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
    assert all_finite(_weights(tmp_path / "run").values())
    newest = max(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert newest == f"step-{broken_after - 1:07d}"


def test_a_validation_loss_that_is_no_number_ends_the_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_module, "validate", _no_number)
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
    assert not [line for line in _log(tmp_path / "run") if "validation_loss" in line]
    assert not (tmp_path / "run" / "best").exists()


@pytest.mark.parametrize("shape", [(), ("model.tie_word_embeddings=false",)])
@pytest.mark.parametrize("preset", ["tiny", "demo"])
def test_a_fresh_run_starts_near_the_logarithm_of_its_vocabulary(
    data: Path, tmp_path: Path, preset: str, shape: tuple[str, ...]
) -> None:
    train(data, tmp_path / "run", small_recipe(f"model.preset={preset}", *shape, steps=1))
    first = _log(tmp_path / "run")[0]
    assert abs(first["loss"] - math.log(300)) < 0.3


def test_validation_every_so_many_steps_and_at_the_end(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe("watch.validate_every=2", steps=5))
    steps = [line["step"] for line in _log(tmp_path / "run") if "validation_loss" in line]
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

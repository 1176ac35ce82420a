"""Is a step worth taking? The guard alone, step by step."""

from __future__ import annotations

import json
import math
import random
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import ConfigError, TrainingError
from llamita.training.health import HealthGuard, all_finite
from llamita.training.settings.recipe import Health
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


def test_of_several_ranks_one_warns_of_steps_without_labels() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HealthGuard(Health(), clip_norm=1.0, warns=False).note_empty()
        guard = HealthGuard(Health(), clip_norm=1.0)
        with pytest.raises(UserWarning, match="without one labelled token"):
            guard.note_empty()
        guard.note_empty()

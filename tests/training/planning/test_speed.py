"""Seconds of a step from shapes that were timed."""

from __future__ import annotations

import pytest

from llamita.config import ModelConfig, shape_for
from llamita.training.planning.shapes import Shape
from llamita.training.planning.speed import SpeedModel, Timed, step_work


def _timed(parameters: int, operation: float, value: float) -> Timed:
    shape = _shape(parameters)
    recipe = shape.recipe(10)
    operations, values = step_work(shape.config, recipe)
    return Timed(shape.config, recipe, operation * operations + value * values)


def _shape(parameters: int) -> Shape:
    config: ModelConfig = shape_for(parameters, 1024, 256)
    return Shape(str(parameters), config)


def test_two_rates_are_found_and_serve_other_shapes() -> None:
    model = SpeedModel.fit([_timed(size, 1e-11, 1e-9) for size in (500_000, 2_000_000)])
    other = _timed(1_200_000, 1e-11, 1e-9)
    assert model.step_seconds(other.config, other.recipe) == pytest.approx(other.step_seconds, 1e-6)


def test_a_timed_shape_is_as_it_was_timed_and_its_neighbours_like_it() -> None:
    timed = [_timed(size, 1e-11, 1e-9) for size in (300_000, 1_000_000, 4_000_000)]
    slow = Timed(timed[1].config, timed[1].recipe, 1.5 * timed[1].step_seconds)
    model = SpeedModel.fit([timed[0], slow, timed[2]])
    assert model.step_seconds(slow.config, slow.recipe) == pytest.approx(slow.step_seconds)
    near = _timed(1_100_000, 1e-11, 1e-9)
    assert model.step_seconds(near.config, near.recipe) > 1.2 * near.step_seconds


def test_a_shape_with_a_larger_batch_is_the_same_shape() -> None:
    timed = [_timed(size, 1e-11, 1e-9) for size in (300_000, 1_000_000, 4_000_000)]
    slow = Timed(timed[1].config, timed[1].recipe, 1.5 * timed[1].step_seconds)
    model = SpeedModel.fit([timed[0], slow, timed[2]])
    shape = _shape(1_000_000)
    recipe = shape.recipe(10, rows=256)
    operations, values = step_work(shape.config, recipe)
    rates = model.operation * operations + model.value * values
    corrected = slow.step_seconds / (
        model.operation * step_work(shape.config, slow.recipe)[0]
        + model.value * step_work(shape.config, slow.recipe)[1]
    )
    assert model.step_seconds(shape.config, recipe) == pytest.approx(corrected * rates)


def test_one_timed_shape_is_enough_and_no_rate_is_below_zero() -> None:
    one = _timed(500_000, 1e-11, 0.0)
    model = SpeedModel.fit([one])
    assert model.step_seconds(one.config, one.recipe) == pytest.approx(one.step_seconds)
    # Quicker the larger it is: nothing fits that, and still no time is negative.
    odd = SpeedModel.fit([one, Timed(_shape(2_000_000).config, one.recipe, one.step_seconds / 4)])
    assert odd.operation >= 0
    assert odd.value >= 0
    assert odd.step_seconds(_shape(8_000_000).config, one.recipe) > 0


def test_work_grows_with_the_batch_but_muon_works_once_a_step() -> None:
    shape = _shape(1_000_000)
    one, two = (step_work(shape.config, shape.recipe(10, rows=rows))[0] for rows in (16, 32))
    assert one < two < 2 * one

"""Paired comparisons against plain references, and that they see what unpaired ones do not."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from llamita.errors import DataError
from llamita.evaluation import comparison
from llamita.evaluation.bits_per_byte import TextScores
from llamita.evaluation.bootstrap import ratio_standard_error
from llamita.evaluation.comparison import (
    compare_answers,
    compare_texts,
    mcnemar_p_value,
    sign_flip_p_value,
)


def scores(bits, sizes, unit="documents") -> TextScores:
    bits, sizes = np.asarray(bits, dtype=float), np.asarray(sizes, dtype=float)
    return TextScores(unit, bits, sizes, float(bits.sum()), int(sizes.sum()), 10, len(bits))


def test_a_small_difference_on_all_documents_is_seen_where_documents_differ_much():
    draw = np.random.default_rng(0)
    sizes = draw.integers(500, 1500, 40).astype(float)
    bits = sizes * draw.normal(2, 0.5, 40)
    better = bits - sizes * draw.normal(0.02, 0.01, 40)
    found = compare_texts(scores(better, sizes), scores(bits, sizes))
    assert found.difference == pytest.approx((better.sum() - bits.sum()) / sizes.sum())
    assert found.difference < 0
    assert found.p_value < 0.01
    assert (found.units, found.stderr_over) == (40, "documents")
    assert found.stderr < ratio_standard_error(bits, sizes) / 10
    # One denominator: the difference is a plain ratio.
    assert found.stderr == pytest.approx(ratio_standard_error(bits - better, sizes), rel=1e-6)
    back = compare_texts(scores(bits, sizes), scores(better, sizes))
    assert back.difference == pytest.approx(-found.difference)
    assert back.p_value == found.p_value


@pytest.mark.parametrize("units", [6, 10, 20, 30])
def test_equal_models_are_called_different_as_seldom_as_promised(units):
    draw = np.random.default_rng(units)
    p_values = []
    for _ in range(400):
        sizes = draw.integers(2000, 6000, units).astype(float)
        common = draw.normal(2, 0.3, units)
        pair = [scores(sizes * (common + draw.normal(0, 0.05, units)), sizes) for _ in range(2)]
        p_values.append(compare_texts(*pair).p_value)
    # 20 of 400 are expected; more than 33 once in 500 times.
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.083


def test_all_signs_are_tried():
    for units in (3, 8, 12):
        values = np.random.default_rng(units).normal(0.5, 1, units)
        signs = np.array(list(itertools.product((-1, 1), repeat=units)))
        far = np.abs(signs @ np.abs(values)) >= abs(values.sum()) - 1e-12
        assert sign_flip_p_value(values) == pytest.approx(far.mean())


def test_drawn_signs_and_many_units_come_near_to_all_of_them(monkeypatch):
    values = np.random.default_rng(3).normal(0.4, 1, 16)
    exact = sign_flip_p_value(values)
    monkeypatch.setattr(comparison, "_EXACT_UNITS", 8)
    assert sign_flip_p_value(values) == pytest.approx(exact, abs=0.02)
    assert sign_flip_p_value(values) == sign_flip_p_value(values)
    monkeypatch.setattr(comparison, "LARGE", 8)
    assert sign_flip_p_value(values) == pytest.approx(exact, abs=0.04)
    assert sign_flip_p_value(np.array([1.0, -1, 1, 1, 0])) == mcnemar_p_value(3, 1)
    assert sign_flip_p_value(np.zeros(4)) == 1


def test_turns_of_one_conversation_are_one_unit():
    first, second = np.ones(12), np.zeros(12)
    groups = [0] * 6 + [1] * 6
    found = compare_answers(first, second, groups)
    assert (found.difference, found.only_first, found.p_value) == (1, 12, 0.5)
    assert compare_answers(first, second).p_value == pytest.approx(2 / 2**12)
    assert compare_answers(first, second, range(12)).p_value == pytest.approx(2 / 2**12)


def test_a_model_equals_itself():
    one = scores([10, 20, 30], [10, 10, 10])
    found = compare_texts(one, one)
    assert (found.difference, found.stderr, found.p_value) == (0, 0, 1)


def test_two_or_three_documents_prove_little():
    found = compare_texts(scores([10, 20, 30], [10] * 3), scores([20, 30, 40], [10] * 3))
    assert found.p_value == pytest.approx(0.25)
    alone = compare_texts(scores([10], [10], "tokens"), scores([20], [10], "tokens"))
    assert alone.difference == -1
    assert math.isnan(alone.stderr)
    assert math.isnan(alone.p_value)


def test_a_last_window_that_only_one_model_begins_a_token_in_is_counted():
    first = TextScores("windows", np.array([9.0, 8.0]), np.array([10.0, 11.0]), 17, 21, 5, 1)
    second = TextScores("windows", np.ones(3), np.array([10.0, 10.0, 1.0]), 3, 21, 9, 1)
    found = compare_texts(first, second)
    assert found.units == 3
    assert math.isfinite(found.stderr)
    assert 0.5 <= found.p_value <= 1


def test_other_texts_and_other_questions_are_refused():
    with pytest.raises(DataError, match="different texts"):
        compare_texts(scores([1, 2], [10, 10]), scores([1, 2], [10, 11]))
    with pytest.raises(DataError, match="3 and 2"):
        compare_answers(np.ones(3), np.ones(2))


@pytest.mark.parametrize(
    ("only_first", "only_second"), [(0, 0), (1, 0), (5, 5), (3, 9), (9, 3), (40, 60), (0, 300)]
)
def test_mcnemar_is_the_binomials_two_tails(only_first, only_second):
    tosses = only_first + only_second
    tail = sum(math.comb(tosses, k) for k in range(min(only_first, only_second) + 1))
    expected = min(Fraction(1), Fraction(2 * tail, 2**tosses))
    assert mcnemar_p_value(only_first, only_second) == pytest.approx(float(expected), rel=1e-9)


def test_answers_are_compared_question_by_question():
    first = np.array([1, 1, 1, 0, 1, 0.5])
    second = np.array([1, 0, 0, 1, 0, 0.5])
    found = compare_answers(first, second)
    assert found.difference == pytest.approx(2 / 6)
    assert (found.questions, found.only_first, found.only_second) == (6, 3, 1)
    assert found.p_value == pytest.approx(2 * (1 + 4) / 16)
    assert found.stderr == pytest.approx(np.std(first - second, ddof=1) / math.sqrt(6))

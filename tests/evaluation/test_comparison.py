"""Paired comparisons against plain references, and that they see what unpaired ones do not."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from llamita.errors import DataError
from llamita.evaluation.bits_per_byte import TextScores
from llamita.evaluation.bootstrap import ratio_standard_error
from llamita.evaluation.comparison import compare_answers, compare_texts, mcnemar_p_value


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


def test_equal_models_are_seldom_called_different():
    draw = np.random.default_rng(1)
    sizes = np.full(30, 1000.0)
    p_values = []
    for _ in range(200):
        common = draw.normal(2000, 300, 30)
        pair = [scores(common + draw.normal(0, 20, 30), sizes) for _ in range(2)]
        p_values.append(compare_texts(*pair).p_value)
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.1


def test_a_model_equals_itself():
    one = scores([10, 20, 30], [10, 10, 10])
    found = compare_texts(one, one)
    assert (found.difference, found.stderr, found.p_value) == (0, 0, 1)


def test_two_or_three_documents_prove_little():
    found = compare_texts(scores([10, 20, 30], [10] * 3), scores([20, 30, 40], [10] * 3))
    assert found.p_value == 0.25
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
    assert 0.25 <= found.p_value <= 1


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

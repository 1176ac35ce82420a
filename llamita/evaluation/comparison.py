"""Which of two models is better on the same data, and whether that is more than chance.

Both models are measured on the same units, so only the differences between them scatter, and far
less than the figures themselves: what is hard for one is hard for the other. Bits per byte are
compared by documents, tool calls by conversations: were the models equal, each difference might as
well have the other sign, so all signs are tried (Fisher, The Design of Experiments, 1935), which
holds for few units too. Answers that are right or wrong are compared by McNemar's exact test on the
questions where the two differ (McNemar 1947; Edwards 1948), which is the same of ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llamita.errors import DataError
from llamita.evaluation.bits_per_byte import TextScores, Unit
from llamita.evaluation.bootstrap import LARGE, mean_standard_error, ratio_standard_error

_EXACT_UNITS = 16
_DRAWS = 9999
_CELLS = 2**20  # signs held at a time


@dataclass(frozen=True)
class TextComparison:
    """`difference` is the first model's bits per byte less the second's: below 0, the first is
    better.

    p_value: how often chance alone would bring a difference so large, either way. Both are NaN
    where there is one unit only.
    """

    difference: float
    stderr: float
    p_value: float
    units: int
    stderr_over: Unit


@dataclass(frozen=True)
class AnswerComparison:
    """`difference` is the first model's accuracy less the second's: above 0, the first is better.

    only_first, only_second: how many questions one model did better at than the other.
    """

    difference: float
    stderr: float
    p_value: float
    questions: int
    only_first: int
    only_second: int


def compare_texts(first: TextScores, second: TextScores) -> TextComparison:
    """Both scored the same text; the units are its documents, or the windows of a single one.

    The standard error is of the paired bootstrap, the p-value of `sign_flip_p_value`: so few units
    as two or three cannot say much.

    Raises:
        DataError: the texts are not the same.
    """
    if (first.documents, first.total_bytes) != (second.documents, second.total_bytes):
        raise DataError(
            f"the models scored different texts: {first.documents:,} documents of "
            f"{first.total_bytes:,} bytes, and {second.documents:,} of {second.total_bytes:,}."
        )
    difference = first.bits_per_byte - second.bits_per_byte
    units = max(len(first.bits), len(second.bits))
    if first.unit == "tokens" or second.unit == "tokens" or units < 2:
        return TextComparison(difference, math.nan, math.nan, 1, first.unit)
    # A last window in which no token of one model begins is missing there.
    bits, size, other_bits, other_size = (
        np.pad(column, (0, units - len(column)))
        for column in (first.bits, first.bytes, second.bits, second.bytes)
    )
    # Where a token across a window's border counts here in one model and there in the other, it
    # brings bits and bytes: what bytes cost on the average goes with them.
    mean = (first.total_bits + second.total_bits) / (2 * first.total_bytes)
    extra = bits - other_bits - mean * (size - other_size)
    error = ratio_standard_error(extra, (size + other_size) / 2)
    return TextComparison(difference, error, sign_flip_p_value(extra), units, first.unit)


def compare_answers(
    first: np.ndarray, second: np.ndarray, groups: Sequence[int] | None = None
) -> AnswerComparison:
    """What each model has of each question [M]: 1 right, 0 wrong, a share where it is undecided.

    groups: the number of the conversation that each question [M] is of. Questions of one are not
    independent: its differences are summed, standard error and p-value are over conversations.

    Raises:
        DataError: the numbers of questions differ.
    """
    if len(first) != len(second):
        raise DataError(
            f"the models answered different questions: {len(first):,} and {len(second):,}."
        )
    differences = first - second
    only_first, only_second = int((differences > 0).sum()), int((differences < 0).sum())
    if groups is None:
        error = mean_standard_error(differences)
        p_value = mcnemar_p_value(only_first, only_second)
    else:
        _, of = np.unique(groups, return_inverse=True)
        sums = np.bincount(of, weights=differences)
        error = ratio_standard_error(sums, np.bincount(of).astype(np.float64))
        p_value = sign_flip_p_value(sums)
    return AnswerComparison(
        difference=float(differences.mean()),
        stderr=error,
        p_value=p_value,
        questions=len(first),
        only_first=only_first,
        only_second=only_second,
    )


def sign_flip_p_value(differences: np.ndarray) -> float:
    """The two-sided p-value of paired differences [M]: how often their sum is as far from 0 where
    each has either sign by a fair coin.

    Exact for up to 16 differences that are not 0, or any number of one size; then of drawn signs
    (seeded); of more than 10,000 the normal distribution with the same scatter.
    """
    sizes = np.abs(differences[differences != 0])
    if not len(sizes):
        return 1.0
    if (sizes == sizes[0]).all():
        return mcnemar_p_value(int((differences > 0).sum()), int((differences < 0).sum()))
    # Sums of the same numbers in another order differ in their last digits.
    far = abs(float(differences.sum())) - 1e-9 * float(sizes.sum())
    if len(sizes) > LARGE:
        return math.erfc(abs(float(differences.sum())) / math.sqrt(2 * float((sizes**2).sum())))
    if len(sizes) <= _EXACT_UNITS:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums + size, sums - size])
        return float((np.abs(sums) >= far).mean())
    generator = np.random.default_rng(0)
    rows = max(1, _CELLS // len(sizes))
    as_far = 0
    for start in range(0, _DRAWS, rows):
        shape = (min(rows, _DRAWS - start), len(sizes))
        signs = 2.0 * generator.integers(0, 2, shape, dtype=np.int8) - 1
        as_far += int((np.abs(signs @ sizes) >= far).sum())
    return (1 + as_far) / (1 + _DRAWS)


def mcnemar_p_value(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value: fair coins fall so unevenly, or more, with this chance."""
    tosses, fewer = only_first + only_second, min(only_first, only_second)
    log_chances = [
        math.lgamma(tosses + 1) - math.lgamma(k + 1) - math.lgamma(tosses - k + 1)
        for k in range(fewer + 1)
    ]
    tail = sum(math.exp(chance - tosses * math.log(2)) for chance in log_chances)
    return min(1.0, 2 * tail)

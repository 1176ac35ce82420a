"""Which of two models is better on the same data, and whether that is more than chance.

Both models are measured on the same units, so only the differences between them scatter, and far
less than the figures themselves: what is hard for one is hard for the other. Bits per byte are
compared by drawing documents (paired bootstrap), answers that are right or wrong by McNemar's exact
test on the questions where the two differ (McNemar 1947; Edwards 1948).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from llamita.errors import DataError
from llamita.evaluation.bits_per_byte import TextScores, Unit
from llamita.evaluation.bootstrap import drawn_sums, mean_standard_error, scatter


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

    The p-value is the share of draws whose difference is as far from the measured one as that is
    from none. So few units as two or three cannot say much, and no p-value is below 2 ** (1 - m),
    what m units that all agree would have by tossing coins.

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
    columns = [first.bits, first.bytes, second.bits, second.bytes]
    # A last window in which no token of one model begins is missing there.
    padded = [np.pad(column, (0, units - len(column))) for column in columns]
    sums = drawn_sums(np.stack(padded, axis=1))
    sums = sums[(sums[:, 1] > 0) & (sums[:, 3] > 0)]  # such a window alone has no ratio
    differences = sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3]
    as_far = int((np.abs(differences - difference) >= abs(difference)).sum())
    p_value = max((1 + as_far) / (1 + len(differences)), 2.0 ** (1 - units))
    return TextComparison(difference, scatter(differences, units), p_value, units, first.unit)


def compare_answers(first: np.ndarray, second: np.ndarray) -> AnswerComparison:
    """What each model has of each question [M]: 1 right, 0 wrong, a share where it is undecided.

    Raises:
        DataError: the numbers of questions differ.
    """
    if len(first) != len(second):
        raise DataError(
            f"the models answered different questions: {len(first):,} and {len(second):,}."
        )
    differences = first - second
    only_first, only_second = int((differences > 0).sum()), int((differences < 0).sum())
    return AnswerComparison(
        difference=float(differences.mean()),
        stderr=mean_standard_error(differences),
        p_value=mcnemar_p_value(only_first, only_second),
        questions=len(first),
        only_first=only_first,
        only_second=only_second,
    )


def mcnemar_p_value(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value: fair coins fall so unevenly, or more, with this chance."""
    tosses, fewer = only_first + only_second, min(only_first, only_second)
    log_chances = [
        math.lgamma(tosses + 1) - math.lgamma(k + 1) - math.lgamma(tosses - k + 1)
        for k in range(fewer + 1)
    ]
    tail = sum(math.exp(chance - tosses * math.log(2)) for chance in log_chances)
    return min(1.0, 2 * tail)

"""Numbers for arguments, of which each belongs to one split."""

from __future__ import annotations

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.wording import Split

# How many digits whole numbers have, mostly few.
_LENGTHS = ((0.14, 1), (0.42, 2), (0.28, 3), (0.11, 4), (0.05, 5))


def split_of(number: str) -> Split:
    """The split that a number belongs to: `test` for a third of them, by all its digits.

    The rest by 3 goes with the sum of digits, so that no digit at any place tells the split.
    """
    return "test" if int(number.replace(".", "")) % 3 == 2 else "train"


def whole_number(split: Split, dice: Dice, most_digits: int = 5) -> str:
    """A whole number from 1, as text."""
    lengths = [entry for entry in _LENGTHS if entry[1] <= most_digits]
    while True:
        length = dice.pick_weighted(lengths)
        first = 10 ** (length - 1)
        number = str(first + dice.below(9 * first))
        if split_of(number) == split:
            return number


def decimal_number(split: Split, dice: Dice) -> str:
    """A number such as 2.5 or 17.25, as text; its last digit is not 0."""
    while True:
        before = dice.below(10) if dice.chance(0.5) else dice.below(100)
        after = str(1 + dice.below(9))
        if dice.chance(0.3):
            after = str(dice.below(10)) + after
        number = f"{before}.{after}"
        if split_of(number) == split:
            return number


def number(split: Split, dice: Dice, decimals: float = 0.15) -> str:
    """A whole number, or with the probability `decimals` one with decimals."""
    return decimal_number(split, dice) if dice.chance(decimals) else whole_number(split, dice)

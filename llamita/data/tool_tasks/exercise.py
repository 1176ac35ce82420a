"""Exercises in saying again what was said, word by word and digit by digit.

Calls are copied from requests, and copying is the one thing that a small model with little text
behind it does not bring along: with lists of tools before every task it meets too little of it to
find out how it is done (docs/experiments.md). These are short, and copying is all that they want.
They are for learning alone: there are none in the test split.
"""

from __future__ import annotations

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.values import number
from llamita.data.tool_tasks.wording import Wordings
from llamita.data.tool_tasks.words import label, loose_words, note

KIND = "exercise"
_FEWEST_ITEMS, _MOST_ITEMS = 2, 8
_ONSETS = (
    *("b", "br", "c", "ch", "d", "f", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pl", "qu"),
    *("r", "s", "sh", "st", "t", "th", "tr", "v", "w", "y", "z", ""),
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ee", "ou", "oo")
_CODAS = ("", "", "n", "r", "l", "s", "t", "d", "m", "ck", "ng", "st", "rd", "x")

_ASKED = Wordings(
    train=(
        "repeat: {x}",
        "say: {x}",
        'say "{x}".',
        'write "{x}"',
        "repeat after me: {x}",
        "again, please: {x}",
        'what i said was "{x}".',
        "copy this: {x}",
    ),
    test=(),
)


def wordings() -> list[str]:
    """Every way to ask, with `SLOT` for what is to be said again."""
    return list(_ASKED.all("train"))


def exercise(dice: Dice) -> Task:
    """Something to say again."""
    kind = dice.below(8)
    if kind == 0:
        text = note("train", dice)
    elif kind == 1:
        text = f"{label('train', dice)} {number('train', dice)}"
    else:
        items = _FEWEST_ITEMS + dice.below(1 + _MOST_ITEMS - _FEWEST_ITEMS)
        text = " ".join(_item(dice) for _ in range(items))
    return Task(KIND, _ASKED.pick("train", dice, x=text), text)


def _item(dice: Dice) -> str:
    """A number, a word, or what is none: that meets tokens that no list of words has."""
    kind = dice.below(4)
    if kind < 2:
        return number("train", dice)
    if kind == 2:
        return dice.pick(loose_words())
    return "".join(
        dice.pick(_ONSETS) + dice.pick(_VOWELS) + dice.pick(_CODAS)
        for _ in range(1 + dice.below(3))
    )

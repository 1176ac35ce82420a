"""Exercises in what calls are made of: words become a formula, units become their signs.

As those in saying again (`exercise`): short, without tools, for learning alone.
"""

from __future__ import annotations

from llamita.data.tool_tasks.arithmetic import in_words
from llamita.data.tool_tasks.conversion import SPOKEN, unit_pairs
from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.wording import Wordings

_FORMULA = Wordings(
    train=(
        "as a formula: {x}",
        "in signs: {x}",
        "write the formula: {x}",
        "the formula only: {x}",
        "how do i type this: {x}",
        'what is the formula for "{x}"?',
        "the formula of {x}.",
        "type {x}.",
        "{x}. as a formula, please.",
        "i need {x} as a formula.",
        "{x}, and only the formula.",
        "put it in signs: {x}.",
    ),
    test=(),
)
# A story ends with a question: nothing fits behind it.
_FORMULA_OF_STORY = Wordings(
    train=tuple(frame for frame in _FORMULA.train if frame.endswith(": {x}")), test=()
)
_SIGN = Wordings(
    train=(
        "the sign of {a}",
        "the sign for {a}?",
        "how are {a} written?",
        "short for {a}",
        "what is short for {a}?",
    ),
    test=(),
)
_SIGNS = Wordings(
    train=(
        "the signs of {a} and {b}",
        "the signs: {a}, {b}",
        "short for {a} and for {b}",
        "from {a} to {b}, in signs.",
        "{a} into {b}, the signs only.",
    ),
    test=(),
)


def wordings() -> list[str]:
    """Every way to ask, with `SLOT` for what is to be translated."""
    return [said for forms in (_FORMULA, _SIGN, _SIGNS) for said in forms.all("train")]


def formula(dice: Dice) -> tuple[str, str]:
    """A request for a formula, and the answer."""
    words, expression = in_words(dice)
    forms = _FORMULA_OF_STORY if words.endswith("?") else _FORMULA
    return forms.pick("train", dice, x=words), expression


def signs(dice: Dice) -> tuple[str, str]:
    """A request for the signs of one or two units, and the answer."""
    if dice.chance(0.25):
        unit = dice.pick(tuple(SPOKEN))
        return _SIGN.pick("train", dice, a=dice.pick(SPOKEN[unit])), unit
    first, second = dice.pick(unit_pairs("train"))
    spoken = [dice.pick(SPOKEN[unit]) for unit in (first, second)]
    return _SIGNS.pick("train", dice, a=spoken[0], b=spoken[1]), f"{first}, {second}"

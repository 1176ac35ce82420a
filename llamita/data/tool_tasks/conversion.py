"""Values in one unit that are wanted in another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.values import number
from llamita.data.tool_tasks.wording import Split, Wordings
from llamita.tools.builtin.units import KINDS, convert_units
from llamita.tools.results import json_text

LONGEST_RESULT = 14  # characters

SPOKEN: dict[str, tuple[str, ...]] = {
    "m": ("meters", "metres"),
    "mm": ("millimeters",),
    "cm": ("centimeters",),
    "km": ("kilometers", "kilometres"),
    "in": ("inches",),
    "ft": ("feet",),
    "yd": ("yards",),
    "mi": ("miles",),
    "g": ("grams",),
    "mg": ("milligrams",),
    "kg": ("kilograms", "kilos"),
    "t": ("tonnes",),
    "oz": ("ounces",),
    "lb": ("pounds",),
    "K": ("kelvin",),
    "C": ("degrees celsius", "celsius"),
    "F": ("degrees fahrenheit", "fahrenheit"),
    "l": ("liters", "litres"),
    "ml": ("milliliters",),
    "m3": ("cubic meters",),
    "tsp": ("teaspoons",),
    "tbsp": ("tablespoons",),
    "cup": ("cups",),
    "pt": ("pints",),
    "qt": ("quarts",),
    "gal": ("gallons",),
    "m/s": ("meters per second",),
    "km/h": ("kilometers per hour",),
    "mph": ("miles per hour",),
    "kn": ("knots",),
    "s": ("seconds",),
    "ms": ("milliseconds",),
    "min": ("minutes",),
    "h": ("hours",),
    "d": ("days",),
    "wk": ("weeks",),
    "m2": ("square meters",),
    "cm2": ("square centimeters",),
    "ha": ("hectares",),
    "km2": ("square kilometers",),
    "ft2": ("square feet",),
    "acre": ("acres",),
    "B": ("bytes",),
    "bit": ("bits",),
    "kB": ("kilobytes",),
    "MB": ("megabytes",),
    "GB": ("gigabytes",),
    "TB": ("terabytes",),
    "KiB": ("kibibytes",),
    "MiB": ("mebibytes",),
    "GiB": ("gibibytes",),
}
"""What people call the units; besides, they write the signs."""

_SIGN_SHARE = 0.2
_PROBES = (2, 5, 8, 23, 56, 95, 230)

ASKED = Wordings(
    train=(
        "[please |now |]convert {v} {from} to {to}[.|]",
        "[can|could] you convert {v} {from} into {to}?",
        "how many {to} is {v} {from}?",
        "how many {to} are [there |]in {v} {from}?",
        "what is {v} {from} in {to}?",
        "{v} {from} in {to}[?|, please.]",
        "{v} {from} to {to}",
        "change {v} {from} into {to}[.| for me.]",
        "i have {v} {from}. how much is that in {to}?",
        "express {v} {from} in {to}.",
        "how much is {v} {from} in {to}?",
        "[my|the] recipe says {v} {from}, i need {to}.",
        "tell me what {v} {from} is in {to}.",
        "i only know {to}. what is {v} {from}?",
        "in {to}, how much is {v} {from}?",
        "turn {v} {from} to {to}.",
        "[give|show] me {v} {from} in {to}.",
        "write {v} {from} in {to}.",
        "what would {v} {from} make in {to}?",
        "we have {v} {from} and want {to}.",
        "{v} {from}, that makes how many {to}?",
        "i measured {v} {from}, how many {to}?",
    ),
    test=(
        "turn {v} {from} so that it is {to}[.|, thanks.]",
        "[say|write] {v} {from} as {to}.",
        "{v} {from} makes what in {to}?",
        "if it has {v} {from}, what would it be in {to}?",
        "give [us|him] {v} {from}, but as {to}[.|, if you can.]",
        "{v} {from} would be how much, counted by {to}?",
        "we measured {v} {from}, but want {to}.",
        "what number of {to} do {v} {from} make?",
        "{to} are wanted, {v} {from} are given.",
    ),
)


def wordings(split: Split) -> list[str]:
    """Every way to ask, with `SLOT` for numbers and units."""
    return list(ASKED.all(split))


@cache
def unit_pairs(split: Split) -> tuple[tuple[str, str], ...]:
    """The units that a split converts into each other; a pair belongs to one split both ways.

    Left out are those so far apart that hardly a result is short.
    """
    return tuple(
        (units[i], units[j])
        for units in KINDS.values()
        for i in range(len(units))
        for j in range(len(units))
        if i != j and ((i + j) % 4 == 1) == (split == "test") and _is_handy(units[i], units[j])
    )


def _is_handy(source: str, target: str) -> bool:
    results = [_result(value, source, target) for value in _PROBES]
    return 2 * sum(result is not None for result in results) >= len(_PROBES)


def _result(value: float, source: str, target: str) -> str | None:
    """The value in the other unit, or None where that is long to say."""
    result = json_text(convert_units(value, source, target))  # type: ignore[arg-type]
    is_short = len(result) <= LONGEST_RESULT and "e" not in result
    return result if is_short and result.strip("-0.") else None


def conversion(split: Split, dice: Dice, units: Sequence[str]) -> Task:
    """A task for a unit converter that knows these units; they must hold a pair of the split."""
    pairs = [pair for pair in unit_pairs(split) if set(pair) <= set(units)]
    while True:
        source, target = dice.pick(pairs)
        text = number(split, dice)
        value = json.loads(text)
        if _result(value, source, target) is not None:
            break
    spoken = [
        unit if dice.chance(_SIGN_SHARE) else dice.pick(SPOKEN[unit]) for unit in (source, target)
    ]
    request = ASKED.pick(split, dice, v=text, **{"from": spoken[0], "to": spoken[1]})
    return Task(
        "conversion",
        request,
        lambda result: f"{text} {source} = {result} {target}",
        "convert_units",
        {"value": value, "from_unit": source, "to_unit": target},
    )

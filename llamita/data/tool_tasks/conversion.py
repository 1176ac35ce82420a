"""Values in one unit that are wanted in another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

from llamita.data.tool_tasks.conversion_wordings import ASKED
from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.values import number
from llamita.data.tool_tasks.wording import Split
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

_SIGN_SHARE: dict[Split, float] = {"train": 0.3, "test": 0.2}
_PROBES = (2, 5, 8, 23, 56, 95, 230)


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
    spoken = {
        name: unit if dice.chance(_SIGN_SHARE[split]) else dice.pick(SPOKEN[unit])
        for name, unit in (("from", source), ("to", target))
    }
    request = ASKED.pick(split, dice, v=text, **spoken)
    return Task(
        "conversion",
        request,
        lambda result: f"{text} {source} = {result} {target}",
        "convert_units",
        {"value": value, "from_unit": source, "to_unit": target},
    )

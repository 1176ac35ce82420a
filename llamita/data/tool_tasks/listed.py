"""The tools as the set lists them: the built-in functions, described in few words.

A list of tools stands before every conversation, and in a small vocabulary JSON is long: the
built-in descriptions would take most of what a small model reads. So they are shortened, the unit
converter knows a few units, and a share of the lists has the built-in descriptions as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from llamita.data.tool_tasks.conversion import unit_pairs
from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.wording import Split
from llamita.tools.builtin import builtin_tools
from llamita.tools.builtin.calculator import calculate
from llamita.tools.builtin.notes import Notes
from llamita.tools.builtin.timers import Timers
from llamita.tools.builtin.units import KINDS, convert_units
from llamita.tools.results import error_text, json_text

CONVERTER = "convert_units"
_FEWEST_UNITS, _MOST_UNITS = 2, 4

_SHORT: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "calculator": ("Calculate.", {"expression": {"type": "string"}}, ("expression",)),
    "add_note": ("Write a note.", {"text": {"type": "string"}}, ("text",)),
    "list_notes": ("List the notes.", {}, ()),
    "delete_note": ("Delete a note.", {"number": {"type": "integer"}}, ("number",)),
    "set_timer": (
        "Set a timer.",
        {"seconds": {"type": "integer"}, "label": {"type": "string"}},
        ("seconds",),
    ),
    "list_timers": ("List the timers.", {}, ()),
}
WEIGHTS = {
    "calculator": 3.0,
    CONVERTER: 3.0,
    "add_note": 3.0,
    "set_timer": 3.0,
    "delete_note": 1.2,
    "list_notes": 1.0,
    "list_timers": 0.8,
}
"""How often each tool is listed, and asked for, against the others."""
_MORE_IN_TRAINING = {"calculator": 1.6, CONVERTER: 1.6}


class Desk:
    """The functions behind the tools, with no notes and no timers yet. Its clock stands still.

    It answers as a `Toolbox` of the built-in tools does, without checking their schemas each time.
    """

    def __init__(self) -> None:
        self.notes = Notes()
        timers = Timers(clock=lambda: 0.0)
        self._functions: dict[str, Callable[..., Any]] = {
            "calculator": calculate,
            CONVERTER: convert_units,
            "add_note": self.notes.add_note,
            "list_notes": self.notes.list_notes,
            "delete_note": self.notes.delete_note,
            "set_timer": timers.set_timer,
            "list_timers": timers.list_timers,
        }

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The JSON text of a call's result, or of {"error": …}."""
        try:
            return json_text(self._functions[name](**arguments))
        except (ValueError, ZeroDivisionError) as error:
            return error_text(str(error))


def weights(split: Split) -> dict[str, float]:
    """`WEIGHTS`; training has more of what is harder to learn."""
    more = _MORE_IN_TRAINING if split == "train" else {}
    return {name: weight * more.get(name, 1.0) for name, weight in WEIGHTS.items()}


def some_units(split: Split, dice: Dice) -> list[str]:
    """A few units of one kind, among them a pair that the split converts."""
    kind = dice.pick(tuple(KINDS))
    pairs = [pair for pair in unit_pairs(split) if pair[0] in KINDS[kind]]
    first, second = dice.pick(pairs)
    rest = [unit for unit in dice.shuffled(KINDS[kind]) if unit not in (first, second)]
    size = _FEWEST_UNITS + dice.below(1 + _MOST_UNITS - _FEWEST_UNITS)
    return dice.shuffled([first, second, *rest[: size - 2]])


@cache
def built_in(name: str) -> dict[str, Any]:
    """A tool as it is described elsewhere, in OpenAI's form."""
    return next(tool.schema for tool in builtin_tools() if tool.name == name)


def described_shortly(name: str, units: Sequence[str]) -> dict[str, Any]:
    """The same in few words; the unit converter knows `units` alone."""
    if name == CONVERTER:
        unit = {"type": "string", "enum": list(units)}
        properties = {"value": {"type": "number"}, "from_unit": unit, "to_unit": unit}
        description, required = "Convert units.", tuple(properties)
    else:
        description, properties, required = _SHORT[name]
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = list(required)
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}

"""What needs no tool: small talk, and questions whose answer stands in the message."""

from __future__ import annotations

from collections.abc import Callable

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.invented import invented
from llamita.data.tool_tasks.message_questions import PATTERNS
from llamita.data.tool_tasks.names import COLOURS, person, place
from llamita.data.tool_tasks.small_talk import TALK
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.things import ONE
from llamita.data.tool_tasks.values import whole_number
from llamita.data.tool_tasks.wording import Split, Wordings, fill, phrase

_INVENTED = 0.4
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# Names and places of the test split. Training has its own (`names`), far more.
_NAMES = ("Bruno", "Laura", "Edgar", "Nora", "Hamlet", "Viola")
_PLACES = ("Padua", "Vienna", "Troy", "Lima")


def wordings(split: Split) -> list[str]:
    """Every way to say it, with `SLOT` for names, places and numbers."""
    patterns = tuple(pattern for pattern, _ in PATTERNS[split])
    return [
        *(said for forms, _ in TALK for said in forms.all(split, is_closed=False)),
        *Wordings(patterns, patterns).all(split),
    ]


def talk(split: Split, dice: Dice) -> Task:
    """Small talk."""
    forms, answer = dice.pick([entry for entry in TALK if entry[0].of(split)])
    pattern = dice.pick(forms.of(split))
    return Task("talk", phrase(pattern, split, dice, is_closed=False), answer)


def in_message(split: Split, dice: Dice) -> Task:
    """A question that the message itself answers."""
    pattern, answer = dice.pick(PATTERNS[split])
    values = _values_of_test(dice) if split == "test" else _values_of_training(dice)
    request = phrase(pattern, split, dice, is_closed=True, **values)
    return Task("in message", request, fill(answer, values) + ".")


def _values_of_test(dice: Dice) -> dict[str, str]:
    first, second = dice.shuffled(_NAMES)[:2]
    return {
        "x": first,
        "y": second,
        "p": dice.pick(_PLACES),
        "a": whole_number("test", dice, 3),
        "b": whole_number("test", dice, 3),
    }


def _values_of_training(dice: Dice) -> dict[str, str]:
    values: dict[str, str] = {}
    kinds: tuple[tuple[str, Callable[[Dice], str]], ...] = (
        *(("xy", person), ("pq", place), ("abc", _number), ("kl", _colour), ("tu", _thing)),
        *(("de", _day), ("h", _time)),
    )
    for slots, make in kinds:
        values |= zip(slots, dice.different(len(slots), make), strict=True)
    return values


def _number(dice: Dice) -> str:
    return whole_number("train", dice, 3)


def _colour(dice: Dice) -> str:
    return dice.pick(COLOURS)


def _thing(dice: Dice) -> str:
    """A thing that "a" can stand before."""
    while True:
        thing = invented(dice) if dice.chance(_INVENTED) else dice.pick(ONE)
        if thing[0] not in "aeiou":
            return thing


def _day(dice: Dice) -> str:
    return dice.pick(_DAYS)


def _time(dice: Dice) -> str:
    hour = 1 + dice.below(12)
    if dice.chance(0.5):
        return f"{hour} o'clock"
    return f"{hour}:{dice.below(6)}{dice.below(10)}"

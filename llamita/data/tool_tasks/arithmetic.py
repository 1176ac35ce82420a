"""Sums and products for the calculator."""

from __future__ import annotations

from dataclasses import dataclass

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.stories import STORIES, names_in_story
from llamita.data.tool_tasks.sum_frames import DEED, THING
from llamita.data.tool_tasks.sums import DEEDS, THINGS, Core
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.values import number, whole_number
from llamita.data.tool_tasks.wording import Split, Wordings, fill, phrase, plain, say, ways
from llamita.tools.builtin.calculator import calculate
from llamita.tools.results import json_text

LONGEST_RESULT = 9  # characters: what a small model can say again

# A little story needs nothing around it.
_STORY = Wordings(train=("{e}",), test=("{e}",))
# How often a thing, a deed or a story is asked for.
_SHARES: dict[Split, tuple[float, float, float]] = {
    "train": (0.5, 0.25, 0.25),
    "test": (0.68, 0.22, 0.10),
}


@dataclass(frozen=True)
class _Kind:
    """Words for expressions; `frames` are what may stand around them."""

    cores: tuple[Core, ...]
    frames: Wordings


def _kinds(split: Split) -> list[tuple[float, _Kind]]:
    things, deeds, stories = _SHARES[split]
    return [
        *((things * weight, _Kind(cores, THING)) for weight, cores in THINGS[split]),
        *((deeds * weight, _Kind(cores, DEED)) for weight, cores in DEEDS[split]),
        (stories, _Kind(STORIES[split], _STORY)),
    ]


_KINDS = {"train": _kinds("train"), "test": _kinds("test")}


def wordings(split: Split) -> list[str]:
    """Every way to ask, with `SLOT` for numbers."""
    found: list[str] = []
    for frames in (THING, DEED, _STORY):
        # Signs are no words, so many formulas are the same here.
        cores = {
            plain(said)
            for _, kind in _KINDS[split]
            if kind.frames is frames
            for words, _ in kind.cores
            for said in ways(words)
        }
        asked = tuple(frame.replace("{e}", core) for core in cores for frame in frames.of(split))
        found += Wordings(asked, asked).all(split)
    return found


def arithmetic(split: Split, dice: Dice) -> Task:
    """A task for the calculator."""
    kind, words, values, expression = _drawn(split, dice)
    pattern = dice.pick(kind.frames.of(split)).replace("{e}", words)
    return Task(
        "arithmetic",
        phrase(pattern, split, dice, is_closed=True, **values),
        lambda result: f"{expression} = {result}",
        "calculator",
        {"expression": expression},
    )


def in_words(dice: Dice) -> tuple[str, str]:
    """Words of the training split, without a question around them, and the formula they mean."""
    _, words, values, expression = _drawn("train", dice)
    return fill(say(words, dice), values), expression


def _drawn(split: Split, dice: Dice) -> tuple[_Kind, str, dict[str, str], str]:
    """What is asked for: its kind, a pattern for it, the values in it, and the formula."""
    kind = dice.pick_weighted(_KINDS[split])
    words, meant = dice.pick(kind.cores)
    is_story = kind.frames is _STORY
    while True:
        values = {
            name: whole_number(split, dice, 4) if is_story else number(split, dice)
            for name in ("a", "b", "c")
        }
        expression = fill(meant, values)
        if _suits(expression, is_story):
            break
    if is_story and split == "train":
        values |= names_in_story(dice)
    return kind, words, values, expression


def _suits(expression: str, is_story: bool) -> bool:
    """Whether the result is short enough, and no fewer than nothing of apples, or a part of one."""
    result = json_text(calculate(expression))
    is_part = is_story and result.startswith("0.")
    return len(result) <= LONGEST_RESULT and not result.startswith("-") and not is_part

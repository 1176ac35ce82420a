"""Wordings: patterns with alternatives and slots, and how the two splits have different ones.

`"[please |]add {a} and {b}"` says two things; alternatives are not nested. A slot is filled with a
value, or shown as `SLOT` where wordings are compared.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from llamita.data.tool_tasks.dice import Dice

Split = Literal["train", "test"]
SLOT = "_"
GRAM = 5  # words in a row that the splits may not share

_HASTY = 0.4
_I = re.compile(r"\bi\b")
_GROUP = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"\w+(?:[.']\w+)*")


@dataclass(frozen=True)
class Wordings:
    """Patterns for each split."""

    train: tuple[str, ...]
    test: tuple[str, ...]

    def of(self, split: Split) -> tuple[str, ...]:
        """The patterns of a split."""
        return self.train if split == "train" else self.test

    def pick(self, split: Split, dice: Dice, **values: str) -> str:
        """One of them, said in one way, with its slots filled."""
        return fill(written(say(dice.pick(self.of(split)), dice), dice), values)

    def all(self, split: Split) -> Iterator[str]:
        """Every way to say every pattern, with `SLOT` for values."""
        for pattern in self.of(split):
            for said in ways(pattern):
                yield _SLOT.sub(SLOT, said)


def say(pattern: str, dice: Dice) -> str:
    """One way to say a pattern."""
    return _GROUP.sub(lambda group: dice.pick(group[1].split("|")), pattern)


def ways(pattern: str) -> Iterator[str]:
    """Every way to say a pattern."""
    parts = _GROUP.split(pattern)  # texts and groups in turns
    options = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return ("".join(chosen) for chosen in itertools.product(*options))


def written(text: str, dice: Dice) -> str:
    """A text as hasty people type it, or with its capitals."""
    if dice.chance(_HASTY):
        return text
    return _I.sub("I", text[:1].upper() + text[1:])


def fill(text: str, values: Mapping[str, str]) -> str:
    """A text with its slots filled; a slot without a value is a KeyError."""
    return _SLOT.sub(lambda slot: values[slot[1]], text)


def grams(text: str) -> set[tuple[str, ...]]:
    """Every `GRAM` words in a row: words in small letters, without the signs around them."""
    words = _WORD.findall(text.lower())
    return {tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)}

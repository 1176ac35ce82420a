"""Wordings: patterns with alternatives and slots, and how the two splits have different ones.

`"[please |]add {a} and {b}"` says two things; alternatives are not nested. A slot is filled with a
value, or shown as `SLOT` where wordings are compared. The training split's are framed, too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.frames import all_framed, framed, sentences

Split = Literal["train", "test"]
SLOT = "_"
GRAM = 5  # words in a row that the splits may not share

_HASTY = 0.4
_SENTENCES = 0.6  # how often each sentence of several begins with a capital
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
        return phrase(dice.pick(self.of(split)), split, dice, **values)

    def all(self, split: Split, *, is_closed: bool = True) -> Iterator[str]:
        """What can be said, with `SLOT` for values: every way to say every pattern, and its joints.

        For the training split that holds each `GRAM` words in a row with an opener or a closer,
        and each saying of fewer words.
        """
        texts = (said for pattern in self.of(split) for said in ways(pattern))
        said = all_framed(texts, is_closed) if split == "train" else texts
        return (_SLOT.sub(SLOT, text) for text in said)


def phrase(pattern: str, split: Split, dice: Dice, *, is_closed: bool = True, **values: str) -> str:
    """A pattern said in one way, with its slots filled; framed in the training split.

    is_closed: whether a closer (", thanks") may follow.
    """
    text = say(pattern, dice)
    if split == "train":
        text = framed(text, dice, is_closed)
        if dice.chance(_SENTENCES):
            text = sentences(text)
    return fill(written(text, dice), values)


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

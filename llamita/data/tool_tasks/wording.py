"""Wordings: patterns with alternatives and slots, and how the two splits have different ones.

`"[please |]add {a} and {b}"` says two things; alternatives are not nested. A slot is filled with a
value, or shown as `SLOT` where wordings are compared. The training split's are framed, too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.frames import CLOSERS, OPENERS, framed, may_close, may_open, sentences

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
        return phrase(dice.pick(self.of(split)), split, dice, is_closed=True, **values)

    def all(self, split: Split, *, is_closed: bool = True) -> Iterator[str]:
        """What can be said, as `plain` words: every way to say every pattern, and its joints.

        For the training split that holds each `GRAM` words in a row with an opener or a closer,
        and each saying of fewer words.
        """
        texts = (said for pattern in self.of(split) for said in ways(pattern))
        return _all_framed(texts, is_closed) if split == "train" else map(plain, texts)


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


def plain(text: str) -> str:
    """Its words in small letters without the signs around them, with `SLOT` for slots."""
    return " ".join(_words(_SLOT.sub(SLOT, text)))


def grams(text: str) -> set[tuple[str, ...]]:
    """Every `GRAM` words in a row."""
    words = _words(text)
    return {tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)}


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _all_framed(texts: Iterable[str], is_closed: bool) -> Iterator[str]:
    """See `Wordings.all`.

    An opener reaches the first words alone and a closer the last, so what many texts begin or end
    with is framed once. Texts so short that both may reach the same words get both.
    """
    heads, tails, shorts = set(), set(), set()
    for text in texts:
        said = plain(text)
        yield said
        words = said.split()
        if may_open(text):
            heads.add(" ".join(words[: GRAM - 1]))
        if may_close(text) and is_closed:
            tails.add(" ".join(words[1 - GRAM :]))
            if may_open(text) and len(words) < GRAM - 1:
                shorts.add(said)
    openers, closers = ({plain(frame) for frame in frames} for frames in (OPENERS, CLOSERS))
    yield from (f"{opener} {head}" for head in heads for opener in openers)
    yield from (f"{tail} {closer}" for tail in tails for closer in closers)
    both = itertools.product(openers, shorts, closers)
    yield from (f"{opener} {text} {closer}" for opener, text, closer in both)

"""Wordings: what is said around them in the training split, and how they are compared."""

from __future__ import annotations

import re

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.frames import CLOSERS, OPENERS
from llamita.data.tool_tasks.wording import GRAM, Wordings, grams, phrase, plain

_ASKED = Wordings(train=("[add|sum] {a} and {b}.", "{a}?"), test=("[what is|tell] {a} with {b}?",))
_VALUES = {"a": "_", "b": "_"}


def test_training_requests_are_framed_and_test_requests_are_not() -> None:
    dice = Dice("frames")
    said = {_ASKED.pick("train", dice, **_VALUES).lower() for _ in range(600)}
    assert any(text.startswith("listen, add _") for text in said)
    assert any(re.search(r"_, thanks\.?$", text) for text in said)
    assert "add _ and _." in said
    tests = {_ASKED.pick("test", dice, **_VALUES).lower() for _ in range(200)}
    assert tests == {"what is _ with _?", "tell _ with _?"}


def test_all_holds_every_five_words_in_a_row_and_every_shorter_saying() -> None:
    dice = Dice("all")
    ways = set(_ASKED.all("train"))
    compared = set().union(*map(grams, ways))
    for _ in range(2000):
        said = _ASKED.pick("train", dice, **_VALUES)
        assert grams(said) <= compared
        assert plain(said) in ways or len(plain(said).split()) >= GRAM


def test_nothing_stands_beside_what_is_copied_word_by_word() -> None:
    dice = Dice("notes")
    for pattern in ("note: {note}", "{note}: that is a note"):
        said = {phrase(pattern, "train", dice, note="buy ink").lower() for _ in range(300)}
        assert all(text.endswith("note: buy ink") or text.startswith("buy ink:") for text in said)
        assert len(said) > 5


def test_what_takes_no_closer_gets_openers_alone() -> None:
    dice = Dice("talk")
    said = {phrase("good luck!", "train", dice, is_closed=False).lower() for _ in range(900)}
    assert {text.rstrip("!") for text in said} == {
        *(opener + "good luck" for opener in OPENERS),
        "good luck",
    }
    assert not any(text.endswith(tuple(CLOSERS)) for text in said)

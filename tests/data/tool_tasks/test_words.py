"""Notes, labels and names: what training says of them is varied, and never the test split's."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from llamita.data.tool_tasks import words
from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.invented import invented
from llamita.data.tool_tasks.note_wordings import ADD
from llamita.data.tool_tasks.wording import GRAM, Split, grams, ways
from llamita.data.tool_tasks.words import deed, label, loose_words, note

# What all notes are made of, and the verb that is a noun in "family call".
_COMMON = {"a", "big", "call", "my", "new", "our", "short", "some", "the", "white", "with"}
_TEXTS = 4000


def _texts(split: Split) -> list[str]:
    dice = Dice(f"words of {split}")
    return [make(split, dice) for make in (note, deed, label) for _ in range(_TEXTS)]


def test_things_of_the_test_split_are_in_no_list_of_training() -> None:
    of_test = {
        word
        for texts in (*words._THINGS.values(), *words._FACTS, words._TIMED)
        for text in texts
        for word in text.split()
    }
    assert of_test & {word.lower() for word in loose_words()} <= _COMMON


def test_notes_of_training_share_no_five_words_in_a_row_with_the_tests() -> None:
    """Even where two words before a note are the same in both."""
    found = {
        split: set().union(*(grams(f"a note {text}") for text in _texts(split)))
        for split in ("train", "test")
    }
    assert found["train"]
    assert found["train"] & found["test"] == set()


def test_splits_say_other_things_right_before_a_note() -> None:
    """As notes of both may begin with the same two words, three in a row before them may not."""

    def joints(split: Split) -> set[tuple[str, ...]]:
        befores = [
            re.findall(r"\w+(?:[.']\w+)*", way.lower().split("{")[0])
            for pattern in ADD.of(split)
            for way in ways(pattern)
        ]
        return {tuple(before[2 - GRAM :]) for before in befores if len(before) >= GRAM - 2}

    assert joints("train")
    assert joints("train") & joints("test") == set()


def test_labels_of_training_have_one_to_three_words_and_those_of_the_test_split_two() -> None:
    dice = Dice("labels")
    assert {len(label("train", dice).split()) for _ in range(300)} == {1, 2, 3}
    assert {len(label("test", dice).split()) for _ in range(300)} == {2}


def test_first_words_of_the_test_split_are_first_words_in_training() -> None:
    firsts = {
        split: {text.split()[0] for text in _texts(split) if text.split()[0].islower()}
        for split in ("train", "test")
    }
    assert firsts["test"] <= firsts["train"]


@pytest.mark.parametrize("make", [note, label])
def test_four_in_ten_notes_and_labels_have_a_word_that_nobody_knows(
    make: Callable[[Split, Dice], str],
) -> None:
    dice = Dice("invented")
    known = {word.lower() for word in loose_words()} | set(words._MANY) | set(words._OWNERS)
    known |= {"is", "has", "in", "for", "about", "to", "an", "a", "show", "leave", "travel", "fly"}
    known |= {"go", "stay", "walk", "give", "the"}
    texts = [make("train", dice) for _ in range(1000)]
    new = [text for text in texts if not set(text.lower().split()) <= known]
    assert 0.3 < len(new) / len(texts) < 0.5


def test_invented_words_are_many_and_look_like_words() -> None:
    dice = Dice("words")
    found = {invented(dice) for _ in range(5000)}
    assert len(found) > 4900
    assert all(re.fullmatch(r"[a-z]{3,20}", word) for word in found)
    vowelless = [word for word in found if not re.search(r"[aeiouy]", word)]
    assert len(vowelless) < 50

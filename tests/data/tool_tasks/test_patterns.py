"""Patterns of requests: each says all that its call needs."""

from __future__ import annotations

import re

import pytest

from llamita.data.tool_tasks.conversion_wordings import ASKED
from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.label_wordings import LABELLED
from llamita.data.tool_tasks.stories import STORIES, names_in_story
from llamita.data.tool_tasks.sum_frames import DEED, THING
from llamita.data.tool_tasks.sums import DEEDS, THINGS
from llamita.data.tool_tasks.timer_wordings import LIST, PLAIN
from llamita.data.tool_tasks.wording import Split, Wordings

SPLITS: tuple[Split, ...] = ("train", "test")
NEEDED: tuple[tuple[Wordings, set[str]], ...] = (
    (ASKED, {"v", "from", "to"}),
    (PLAIN, {"s"}),
    (LABELLED, {"s", "label"}),
    (LIST, set()),
    (THING, {"e"}),
    (DEED, {"e"}),
)


def _slots(text: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", text)


@pytest.mark.parametrize(("wordings", "needed"), NEEDED)
def test_every_pattern_has_every_slot_and_is_there_once(
    wordings: Wordings, needed: set[str]
) -> None:
    for split in SPLITS:
        patterns = wordings.of(split)
        assert len(set(patterns)) == len(patterns)
        for pattern in patterns:
            assert set(_slots(pattern)) == needed, pattern


@pytest.mark.parametrize("split", SPLITS)
def test_words_of_sums_say_each_number_of_their_expression(split: Split) -> None:
    groups = (*THINGS[split], *DEEDS[split], (1.0, STORIES[split]))
    others = names_in_story(Dice("a story"))
    for _, group in groups:
        for words, expression in group:
            numbers = [slot for slot in _slots(words) if slot not in others]
            assert sorted(numbers) == sorted(_slots(expression)), words


def test_training_stories_want_each_operator_in_many_ways() -> None:
    for sign in "+-*/":
        assert sum(meant == f"{{a}}{sign}{{b}}" for _, meant in STORIES["train"]) >= 20


def test_many_training_conversions_name_the_wanted_unit_first() -> None:
    first = [text for text in ASKED.train if text.index("{to}") < text.index("{v}")]
    assert len(first) > len(ASKED.train) / 3

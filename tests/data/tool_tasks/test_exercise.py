"""Exercises: what is to be said stands in the request, and no list of words tells it."""

from __future__ import annotations

import re

from llamita.data.tool_tasks import exercise as exercises
from llamita.data.tool_tasks.conversion import SPOKEN
from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.exercise import exercise, wordings
from llamita.data.tool_tasks.lexicon import Lexicon
from llamita.data.tool_tasks.task import Task
from llamita.tools.builtin.calculator import calculate


def _tasks(count: int) -> list[Task]:
    dice = Dice("exercises")
    tasks = (exercise(dice, Lexicon()) for _ in range(2 * count))
    return [task for task in tasks if task.kind == exercises.KIND]


def test_translations_are_formulas_and_signs_of_units() -> None:
    dice = Dice("translations")
    tasks = [exercise(dice, Lexicon()) for _ in range(1000)]
    answers = [str(task.answer) for task in tasks if task.kind == exercises.TRANSLATION]
    formulas = [answer for answer in answers if set(answer) <= set("0123456789.+-*/()")]
    assert all(calculate(formula) is not None for formula in formulas)
    units = {unit for answer in answers if answer not in formulas for unit in answer.split(", ")}
    assert units <= set(SPOKEN)
    assert len(units) > 40
    assert len(formulas) > 100


def test_answers_stand_in_the_request_letter_by_letter() -> None:
    for task in _tasks(1000):
        assert isinstance(task.answer, str)
        assert task.answer
        assert task.answer in task.request


def test_answers_are_short_and_seldom_the_same() -> None:
    answers = [str(task.answer) for task in _tasks(1000)]
    assert max(map(len, answers)) < 80
    assert sum(map(len, answers)) / len(answers) < 20
    assert len(set(answers)) > 800


def test_one_of_several_is_the_one_at_that_place() -> None:
    asked = re.compile(r"^the (first|second|third|fourth|fifth|last)(?: of)?: (.*)$", re.IGNORECASE)
    found = [(asked.match(task.request), task.answer) for task in _tasks(6000)]
    checked = 0
    for match, answer in found:
        if match is not None:
            items = re.split(r",? ", match[2])
            place = -1 if match[1] == "last" else exercises._PLACES.index(match[1].lower())
            assert items[place] == answer
            checked += 1
    assert checked > 30


def test_a_neighbour_is_the_word_beside_the_one_that_is_named() -> None:
    dice = Dice("neighbours")
    asked = re.compile(r"^the word (after|before) (\S+): (.*)$", re.IGNORECASE)
    checked = 0
    for _ in range(600):
        task = exercises._neighbour(dice, Lexicon())
        match = asked.match(task.request)
        if match is not None:
            items = re.split(r",? ", match[3])
            step = 1 if match[1] == "after" else -1
            assert items[items.index(match[2]) + step] == task.answer
            checked += 1
    assert checked > 10


def test_there_are_many_ways_to_ask() -> None:
    assert len(set(wordings())) > 50

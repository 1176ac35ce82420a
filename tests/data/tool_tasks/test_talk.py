"""Small talk and questions about the message: answers are copies, and values are varied."""

from __future__ import annotations

import pytest

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.message_questions import PATTERNS
from llamita.data.tool_tasks.small_talk import TALK
from llamita.data.tool_tasks.talk import in_message, talk
from llamita.data.tool_tasks.wording import Split


@pytest.mark.parametrize("split", ["train", "test"])
def test_answers_stand_in_the_message_word_by_word(split: Split) -> None:
    dice = Dice("in message")
    for _ in range(500):
        task = in_message(split, dice)
        assert isinstance(task.answer, str)
        said = task.request.lower().replace(",", "").replace(":", "")
        for word in task.answer.lower().removesuffix(".").replace(":", "").split():
            assert word in said


def test_answers_of_training_are_too_many_to_be_learned_by_heart() -> None:
    dice = Dice("answers")
    answers = [str(in_message("train", dice).answer) for _ in range(1000)]
    assert len(set(answers)) > 600


def test_a_question_in_training_has_one_answer() -> None:
    assert len({pattern for pattern, _ in PATTERNS["train"]}) == len(PATTERNS["train"])


def test_what_is_said_as_small_talk_has_one_answer() -> None:
    said = [pattern for forms, _ in TALK for pattern in (*forms.train, *forms.test)]
    assert len(set(said)) == len(said)


def test_small_talk_of_the_test_split_is_of_kinds_that_training_has() -> None:
    dice = Dice("talk")
    answers = {answer for forms, answer in TALK if forms.train}
    assert {talk("test", dice).answer for _ in range(300)} <= answers

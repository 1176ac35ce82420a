"""Multiple choice: which answer does a model find likeliest?

The question is put in two ways. `full`: each answer's whole text after the question. `letters`: the
answers stand under A, B, C, … with the question, and the letters are compared. Of either, four
scores, each with its own winner:

    sum         ln p of the answer
    per_byte    that over the answer's UTF-8 bytes: long answers are no longer at a disadvantage
    per_token   that over its tokens
    pmi         ln p with the question less ln p without it (what stands behind the question in the
                prompt alone): how much the question tells of the answer, however common its words
                are (Holtzman et al. 2021, arXiv:2104.08315)

Answers that share the best score share the point, but for answers with one text, which are one.
Nothing is chosen after the fact: all figures stand side by side, beside what guessing gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llamita.config import ModelConfig
from llamita.errors import DataError
from llamita.evaluation.bootstrap import mean_standard_error
from llamita.evaluation.continuations import (
    Continuation,
    encode_answers,
    encode_continuations,
    score_continuations,
)
from llamita.evaluation.questions import LETTERS, Question
from llamita.model.transformer import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import ChatFormat

DEFAULT_PROMPT = "Question: {question}\nAnswer:"
WAYS = ("full", "letters")
SCORES = ("sum", "per_byte", "per_token", "pmi")

_PLACE = "{question}"


@dataclass(frozen=True)
class ChoiceResults:
    """What a model has of each question, by way and score: 1, 0, or a share [questions].

    chance: the accuracy of guessing. cut_questions: how many did not fit the context, so that their
    beginning was not read.
    """

    points: Mapping[tuple[str, str], np.ndarray]
    chance: float
    cut_questions: int

    def summary(self) -> dict[str, Any]:
        """Accuracies with their standard errors, as plain data."""
        result: dict[str, Any] = {
            "questions": len(next(iter(self.points.values()))),
            "chance": self.chance,
            "cut_questions": self.cut_questions,
        }
        for (way, score), points in self.points.items():
            figures = {"accuracy": float(points.mean()), "stderr": mean_standard_error(points)}
            result.setdefault(way, {})[score] = figures
        return result


@dataclass(frozen=True)
class _Asked:
    """One way of asking one question: what is scored, and the bytes of each answer."""

    with_question: list[Continuation]
    without: list[Continuation]
    answer_bytes: list[int]


def multiple_choice(
    model: Transformer,
    tokenizer: Tokenizer,
    questions: Sequence[Question],
    *,
    prompt: str = DEFAULT_PROMPT,
    chat: ChatFormat | None = None,
    progress: Callable[[int], object] | None = None,
) -> ChoiceResults:
    """Ask all questions in all ways.

    prompt: how a question is written, with `{question}` in it; a space and the answer follow. chat:
    how a model that chats is asked: the prompt is the user's message, the answer the assistant's.
    `progress` is called with the answers that were scored, of `answers_of` in all.

    Raises:
        DataError: a prompt without a place for the question, or an answer longer than the context.
        CheckpointError: the model computes no numbers.
    """
    check_prompt(prompt)
    asked = [
        _ask(model.config, tokenizer, chat, question, way, prompt)
        for question in questions
        for way in WAYS
    ]
    continuations = [c for one in asked for c in (*one.with_question, *one.without)]
    found = iter(score_continuations(model, continuations, progress=progress))
    points: dict[tuple[str, str], list[float]] = {(w, s): [] for w in WAYS for s in SCORES}
    for number, one in enumerate(asked):
        question, way = questions[number // len(WAYS)], WAYS[number % len(WAYS)]
        known = np.array([next(found).log_likelihood for _ in one.with_question])
        unknown = np.array([next(found).log_likelihood for _ in one.without])
        tokens = [len(continuation.targets) for continuation in one.with_question]
        scores = (known, known / one.answer_bytes, known / tokens, known - unknown)
        for score, values in zip(SCORES, scores, strict=True):
            points[way, score].append(_point(values, _right_places(question, way)))
    longest = model.config.max_position_embeddings
    is_cut = [any(c.length > longest for c in one.with_question) for one in asked]
    return ChoiceResults(
        points={key: np.array(values) for key, values in points.items()},
        chance=float(np.mean([1 / len(question.choices) for question in questions])),
        cut_questions=sum(map(any, zip(is_cut[::2], is_cut[1::2], strict=True))),
    )


def answers_of(questions: Sequence[Question]) -> int:
    """How many texts are scored: each answer in both ways, with the question and without."""
    return sum(len(question.choices) for question in questions) * len(WAYS) * 2


def check_questions(
    tokenizer: Tokenizer,
    config: ModelConfig,
    questions: Sequence[Question],
    prompt: str = DEFAULT_PROMPT,
    chat: ChatFormat | None = None,
) -> None:
    """Raise what `multiple_choice` would of a model before it scores an answer."""
    for question in questions:
        for way in WAYS:
            _ask(config, tokenizer, chat, question, way, prompt)


def check_prompt(prompt: str) -> None:
    """Raise DataError unless a prompt has one place for the question."""
    if prompt.count(_PLACE) != 1:
        raise DataError(
            f"the prompt {prompt!r} has {prompt.count(_PLACE)} places for the question.",
            hint=f"It needs one {_PLACE}, as {DEFAULT_PROMPT!r}.",
        )


def _ask(
    config: ModelConfig,
    tokenizer: Tokenizer,
    chat: ChatFormat | None,
    question: Question,
    way: str,
    prompt: str,
) -> _Asked:
    text, answers = question.question, list(question.choices)
    if way == "letters":
        letters = LETTERS[: len(answers)]
        listed = "\n".join(f"{a}. {b}" for a, b in zip(letters, answers, strict=True))
        text, answers = f"{text}\n{listed}", [*letters]
    before, _, behind = prompt.partition(_PLACE)
    # A prompt that ends in a space leaves none to be put before the answer.
    gap = "" if prompt.endswith((" ", "\n")) else " "

    def encode(context: str) -> list[Continuation]:
        if chat is not None:
            return encode_answers(chat, config, context, answers)
        continuations = [gap + answer for answer in answers]
        return encode_continuations(tokenizer, config, context, continuations)

    try:
        with_question = encode(f"{before}{text}{behind}")
        without = encode(behind.lstrip())
    except DataError as error:
        raise DataError(f"{question.place}: {error.message}", hint=error.hint) from None
    longest = max(len(continuation.targets) for continuation in with_question)
    if longest > config.max_position_embeddings:
        raise DataError(
            f"{question.place}: an answer has {longest:,} tokens; the model's context holds "
            f"{config.max_position_embeddings:,}."
        )
    return _Asked(with_question, without, [len(answer.encode()) for answer in answers])


def _right_places(question: Question, way: str) -> list[int]:
    """The gold; of full answers also another choice with the very same text."""
    if way == "letters":
        return [question.gold]
    right = question.choices[question.gold]
    return [place for place, choice in enumerate(question.choices) if choice == right]


def _point(scores: np.ndarray, right: Sequence[int]) -> float:
    best = scores == scores.max()
    return float(best[list(right)].sum() / best.sum())

"""Multiple choice against a plain reference, and models whose answers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from llamita.errors import DataError
from llamita.evaluation.multiple_choice import SCORES, WAYS, answers_of, multiple_choice
from llamita.evaluation.questions import Question
from llamita.tokenizer.chat import ChatFormat

QUESTIONS = [
    Question("What is the capital of France?", ("Paris", "London", "Rome or Madrid"), 0, "q:1"),
    Question("What ran over the dog?", ("the red fox", "é🦙"), 1, "q:2"),
    Question("Who slept?", ("the fox", "the dog", "A", "the lazy dog"), 3, "q:3"),
    Question("What?", ("B", "the red fox ran over the lazy dog"), 1, "q:4"),
]


def likelihood(model, tokenizer, context, continuation) -> tuple[float, int]:
    """ln p and the number of tokens of a continuation, one text at a time."""
    before = tokenizer.encode(context)
    ids = tokenizer.encode(context + continuation)
    assert ids[: len(before)] == before
    with torch.no_grad():
        logits = model(torch.tensor([[tokenizer.separator_id, *ids]]))[0].double()
    nats = logits.log_softmax(-1)
    places = range(len(before), len(ids))
    return sum(nats[place][ids[place]].item() for place in places), len(places)


def plain(model, tokenizer, question: Question, way: str) -> dict[str, int]:
    """Which answer each score chooses."""
    asked, answers = question.question, list(question.choices)
    if way == "letters":
        letters = "ABCD"[: len(answers)]
        asked += "".join(f"\n{a}. {b}" for a, b in zip(letters, answers, strict=True))
        answers = list(letters)
    scores: dict[str, list[float]] = {name: [] for name in SCORES}
    for answer in answers:
        known, tokens = likelihood(model, tokenizer, f"Question: {asked}\nAnswer:", f" {answer}")
        unknown, _ = likelihood(model, tokenizer, "Answer:", f" {answer}")
        scores["sum"].append(known)
        scores["per_byte"].append(known / len(answer.encode()))
        scores["per_token"].append(known / tokens)
        scores["pmi"].append(known - unknown)
    return {name: int(np.argmax(values)) for name, values in scores.items()}


@pytest.mark.parametrize("seed", range(6))
def test_every_score_chooses_as_a_plain_reading_does(random_model, word_tokenizer, seed):
    model = random_model(seed)
    results = multiple_choice(model, word_tokenizer, QUESTIONS)
    for number, question in enumerate(QUESTIONS):
        for way in WAYS:
            chosen = plain(model, word_tokenizer, question, way)
            for score in SCORES:
                expected = float(chosen[score] == question.gold)
                assert results.points[way, score][number] == expected, (question.place, way, score)


def test_the_summary_has_accuracies_with_their_errors(random_model, word_tokenizer):
    results = multiple_choice(random_model(), word_tokenizer, QUESTIONS)
    summary = results.summary()
    assert summary["questions"] == 4
    assert summary["chance"] == pytest.approx((1 / 3 + 1 / 2 + 1 / 4 + 1 / 2) / 4)
    assert summary["cut_questions"] == 0
    for way in WAYS:
        for score in SCORES:
            points = results.points[way, score]
            figures = summary[way][score]
            assert figures["accuracy"] == pytest.approx(points.mean())
            assert figures["stderr"] == pytest.approx(points.std(ddof=1) / math.sqrt(4))


def test_a_model_that_knows_nothing_gets_what_guessing_gets(random_model, word_tokenizer):
    model = random_model()
    model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    golds_first = [Question(q.question, q.choices, 0, q.place) for q in QUESTIONS]
    summary = multiple_choice(model, word_tokenizer, golds_first).summary()
    for score in ("sum", "per_byte", "per_token", "pmi"):
        assert summary["letters"][score]["accuracy"] == pytest.approx(summary["chance"])
    assert summary["full"]["per_token"]["accuracy"] == pytest.approx(summary["chance"])
    assert summary["full"]["pmi"]["accuracy"] == pytest.approx(summary["chance"])


def test_a_choice_with_the_golds_text_is_right_too(random_model, word_tokenizer):
    choices = ("Paris", "Paris", "Rome or Madrid")
    questions = [Question("What?", choices, gold, "q:1") for gold in range(3)]
    points = multiple_choice(random_model(0), word_tokenizer, questions).points["full", "sum"]
    assert points.tolist() in ([1, 1, 0], [0, 0, 1])


def test_a_prompt_of_ones_own_and_what_it_must_have(random_model, word_tokenizer):
    model = random_model()
    plainest = multiple_choice(model, word_tokenizer, QUESTIONS, prompt="{question}")
    question = QUESTIONS[1]
    sums = [
        likelihood(model, word_tokenizer, question.question, f" {answer}")[0]
        for answer in question.choices
    ]
    assert plainest.points["full", "sum"][1] == float(np.argmax(sums) == question.gold)
    for prompt in ("Answer:", "{question} {question}"):
        with pytest.raises(DataError, match="places for the question"):
            multiple_choice(model, word_tokenizer, QUESTIONS, prompt=prompt)


def test_questions_longer_than_the_context_are_counted(random_model, word_tokenizer):
    results = multiple_choice(random_model(context=12), word_tokenizer, QUESTIONS)
    assert 1 <= results.cut_questions <= 4
    long = Question("?", ("a", "the red fox ran " * 20), 0, "file.jsonl:9")
    with pytest.raises(DataError, match=r"file\.jsonl:9: an answer has \d+ tokens"):
        multiple_choice(random_model(context=12), word_tokenizer, [long])


def test_progress_counts_all_answers(random_model, word_tokenizer):
    done = []
    multiple_choice(random_model(), word_tokenizer, QUESTIONS, progress=done.append)
    assert sum(done) == answers_of(QUESTIONS) == (3 + 2 + 4 + 2) * 4


def test_a_model_that_chats_is_asked_in_its_own_format(random_model, word_tokenizer):
    model = random_model()
    template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    chat = ChatFormat.of(word_tokenizer.with_chat_template(template))
    results = multiple_choice(model, word_tokenizer, QUESTIONS, prompt="{question}", chat=chat)
    for number, question in enumerate(QUESTIONS):
        prompt = chat.encode([{"role": "user", "content": question.question}], None, True)
        sums = []
        for answer in question.choices:
            whole = chat.encode_parts([*prompt_parts(chat, question.question), answer])
            with torch.no_grad():
                nats = model(torch.tensor([whole]))[0].double().log_softmax(-1)
            # The prompt's last token may have grown into the answer's first.
            shared = next(
                (i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b),
                len(prompt),
            )
            sums.append(sum(nats[i - 1][whole[i]].item() for i in range(shared, len(whole))))
        expected = float(np.argmax(sums) == question.gold)
        assert results.points["full", "sum"][number] == expected


def prompt_parts(chat: ChatFormat, question: str) -> list[str | int]:
    return chat.parts([{"role": "user", "content": question}], None, True)

"""Questions from files: fields by any name, golds as declared, mistakes with their line."""

from __future__ import annotations

import json

import pytest

from llamita.errors import DataError
from llamita.evaluation.questions import check_gold, parse_fields, read_questions

CHOICES = ["ten", "two", "six"]


@pytest.fixture
def write(tmp_path):
    def write(*lines, name="questions.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
        return path

    return write


def line(gold, **others):
    return {"question": "2 × 3?", "choices": CHOICES, "gold": gold} | others


@pytest.mark.parametrize(
    ("gold", "value"),
    [
        ("index0", 2),
        ("index0", "2"),
        ("index1", 3),
        ("letter", "C"),
        ("letter", "c"),
        ("text", "six"),
    ],
)
def test_the_gold_is_read_as_it_is_declared(write, gold, value):
    [question] = read_questions(write(line(value)), gold)
    assert (question.question, question.choices, question.gold) == ("2 × 3?", (*CHOICES,), 2)


def test_a_number_that_both_countings_allow_is_two_different_answers(write):
    path = write(line(1))
    assert [read_questions(path, way)[0].gold for way in ("index0", "index1")] == [1, 0]


@pytest.mark.parametrize(
    ("gold", "value"),
    [
        *(("index0", value) for value in (3, -1, "3", 1.0, True, None, "B", [1])),
        *(("index1", value) for value in (0, 4, "0", False)),
        *(("letter", value) for value in ("D", "AB", "", 0, None, "1")),
        *(("text", value) for value in ("twelve", "SIX", " six", None, 2)),
    ],
)
def test_a_gold_outside_is_an_error_that_names_file_line_and_value(write, gold, value):
    path = write(line(2 if gold == "index0" else {"index1": 3, "letter": "C"}.get(gold, "six")))
    path.write_text(path.read_text() + "\n\n" + json.dumps(line(value)), encoding="utf-8")
    with pytest.raises(DataError, match=r"questions\.jsonl:3: the gold is") as error:
        read_questions(path, gold)
    assert repr(value) in error.value.message
    assert f"--gold {gold} means" in (error.value.hint or "")


def test_a_text_that_two_choices_have_is_no_gold(write):
    path = write({"question": "?", "choices": ["a", "b", "a"], "gold": "a"})
    with pytest.raises(DataError, match="names 2 of the 3 choices"):
        read_questions(path, "text")


def test_the_fields_of_known_sets(write):
    arc = {
        "question": "Which is a gas?",
        "choices": {"text": ["iron", "air"], "label": ["1", "2"]},
        "answerKey": "2",
    }
    fields = parse_fields("choices=choices.text,labels=choices.label,gold=answerKey")
    [question] = read_questions(write(arc), "label", fields)
    assert (question.choices, question.gold) == (("iron", "air"), 1)

    older = {
        "question": {"stem": "Which?", "choices": [{"text": "a", "label": "A"}, {"text": "b"}]},
        "answerKey": "A",
    }
    fields = parse_fields("question=question.stem,choices=question.choices.text,gold=answerKey")
    [question] = read_questions(write(older), "letter", fields)
    assert (question.question, question.choices, question.gold) == ("Which?", ("a", "b"), 0)

    mmlu = {"question": "1 + 1?", "choices": [1, 2.5, "2", "3"], "answer": 2}
    [question] = read_questions(write(mmlu), "index0", parse_fields("gold=answer"))
    assert (question.choices, question.gold) == (("1", "2.5", "2", "3"), 2)

    hellaswag = {"ctx": "A man sits", "endings": ["down.", "up."], "label": "1"}
    fields = parse_fields("question=ctx, choices=endings, gold=label")
    [question] = read_questions(write(hellaswag), "index0", fields)
    assert (question.choices, question.gold) == (("down.", "up."), 1)

    apart = {"question": "?", "A": "one", "B": "two", "answer": "B"}
    [question] = read_questions(write(apart), "letter", parse_fields("choices=A+B,gold=answer"))
    assert (question.choices, question.gold) == (("one", "two"), 1)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"question": "?", "choices": CHOICES}, "no field 'gold'; known there: 'question'"),
        (line(0, question=" "), "the question is ' '"),
        (line(0, question=7), "the question is 7"),
        (line(0, choices="ten"), "choices is 'ten', and no list"),
        (line(0, choices=["a"]), "has 1 choices"),
        (line(0, choices=["a", None]), "holds None"),
        (line(0, choices=["a", "\n"]), r"holds '\\n'"),
        (line(0, choices=[str(n) for n in range(27)]), "27 choices; there are 26 letters"),
        ([1], "no JSON object"),
    ],
)
def test_what_is_no_question_is_told_with_its_line(write, wrong, told):
    with pytest.raises(DataError, match=told) as error:
        read_questions(write(line(0), wrong), "index0")
    assert "questions.jsonl:2" in error.value.message


def test_files_that_hold_no_questions(write, tmp_path):
    with pytest.raises(DataError, match="no questions"):
        read_questions(write(), "index0")
    (tmp_path / "a.txt").write_text("What?")
    with pytest.raises(DataError, match="no JSONL"):
        read_questions(tmp_path / "a.txt", "index0")
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        read_questions(tmp_path / "nowhere.jsonl", "index0")
    (tmp_path / "b.jsonl").write_text('{"question": ')
    with pytest.raises(DataError, match=r"b\.jsonl:1"):
        read_questions(tmp_path / "b.jsonl", "index0")


def test_labels_need_to_be_named_and_as_many_as_choices(write):
    with pytest.raises(DataError, match="label"):
        read_questions(write(line("x")), "label")
    path = write(line("x", labels=["x", "y"]))
    with pytest.raises(DataError, match="3 choices and 2 labels"):
        read_questions(path, "label", parse_fields("labels=labels"))


@pytest.mark.parametrize("text", ["ctx", "query=ctx", "question=", "=a", "question=a,,gold=b"])
def test_wrong_names_of_fields_are_refused(text):
    with pytest.raises(DataError, match="--mcq-fields"):
        parse_fields(text)


def test_the_way_of_golds_is_never_guessed():
    assert check_gold("index1") == "index1"
    for gold in (None, "0", "number", ""):
        with pytest.raises(DataError, match="--gold") as error:
            check_gold(gold)
        assert "index0" in (error.value.hint or "")


@pytest.mark.parametrize("value", ["9" * 5000, " " + "1" * 30])
def test_a_gold_of_many_digits_is_told_with_its_line_and_not_whole(write, value):
    with pytest.raises(DataError, match=r"questions\.jsonl:1: the gold is '") as error:
        read_questions(write(line(value)), "index0")
    assert len(error.value.message) < 300


@pytest.mark.parametrize("others", [{"question": "\ud83e?"}, {"choices": ["a", "\ud83e", "b"]}])
def test_half_a_character_is_told_with_its_line(write, others):
    with pytest.raises(DataError, match=r"questions\.jsonl:1: .* holds half a character"):
        read_questions(write(line(0, **others)), "index0")

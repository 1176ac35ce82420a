"""Multiple-choice questions out of JSONL, whatever their fields are called.

How the right answer is named is declared and not guessed: in a file whose answers happen to be 1
and 2 nothing tells counting from 0 from counting from 1, and the wrong guess still gives a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from llamita.errors import DataError
from llamita.files import parse_json
from llamita.text.decoding import read_text
from llamita.text.sources import find_text_files

Gold: TypeAlias = Literal["index0", "index1", "letter", "text", "label"]

FIELDS: Mapping[str, str] = {"question": "question", "choices": "choices", "gold": "gold"}
"""Where a line has what, unless it is said otherwise."""
FIELD_NAMES = (*FIELDS, "labels")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_GOLDS: Mapping[Gold, str] = {
    "index0": "a whole number, 0 for the first choice",
    "index1": "a whole number, 1 for the first choice",
    "letter": "a letter, A for the first choice",
    "text": "the text of one of the choices",
    "label": "one of the labels",
}


@dataclass(frozen=True)
class Question:
    """A question with its choices; `gold` counts from 0. `place` is its file and line."""

    question: str
    choices: tuple[str, ...]
    gold: int
    place: str


def parse_fields(text: str | None) -> dict[str, str]:
    """`question=ctx,choices=endings,gold=label` as a table, with `FIELDS` for what is not named.

    A field inside another is written `choices.text`; choices in several fields, `A+B+C+D`.

    Raises:
        DataError: it is not of this form.
    """
    fields = dict(FIELDS)
    for part in (text or "").split(","):
        name, _, path = part.strip().partition("=")
        if not part.strip() and not text:
            continue
        if name not in FIELD_NAMES or not path:
            raise DataError(
                f"--mcq-fields has {part!r}.",
                hint=f"Its parts are NAME=FIELD, with a name of: {', '.join(FIELD_NAMES)}; "
                "as question=ctx,choices=endings,gold=label.",
            )
        fields[name] = path
    return fields


def check_gold(gold: str | None) -> Gold:
    """One of the ways to name the right answer.

    Raises:
        DataError: it is none of them, or none is named.
    """
    known: tuple[Gold, ...] = get_args(Gold)
    for way in known:
        if gold == way:
            return way
    hint = "; ".join(f"{name}: {meaning}" for name, meaning in _GOLDS.items())
    if gold is None:
        raise DataError("--gold is missing: how the file names the right answer.", hint=hint)
    raise DataError(f"--gold is {gold!r}.", hint=hint)


def read_questions(path: Path, gold: Gold, fields: Mapping[str, str] = FIELDS) -> list[Question]:
    """The questions of a JSONL file.

    Raises:
        DataError: the file is missing or damaged, or a line is no question; it names the line.
    """
    if gold == "label" and "labels" not in fields:
        raise DataError(
            "--gold is label, but where the labels are is not said.",
            hint="Add it to --mcq-fields, as labels=choices.label.",
        )
    [file] = find_text_files([path]).files
    if file.kind != "jsonl":
        raise DataError(
            f"{file} is no JSONL file.", hint="Questions are one JSON object a line, in .jsonl."
        )
    questions = []
    for number, line in enumerate("".join(read_text(file)).split("\n"), start=1):
        if line.strip():
            place = f"{file}:{number}"
            questions.append(_read(parse_json(line, place), place, gold, fields))
    if not questions:
        raise DataError(f"there are no questions in {file}.")
    return questions


def _read(line: Any, place: str, gold: Gold, fields: Mapping[str, str]) -> Question:
    if not isinstance(line, dict):
        raise DataError(f"{place} is no JSON object.", hint=f"It needs {', '.join(FIELDS)}.")
    question = _at(line, fields["question"], place)
    if not isinstance(question, str) or not question.strip():
        raise DataError(f"{place}: the question is {question!r}, and no text.")
    choices = _several(line, fields["choices"], place)
    if len(choices) < 2:
        raise DataError(f"{place} has {len(choices)} choices; a question has two or more.")
    if len(choices) > len(LETTERS):
        raise DataError(f"{place} has {len(choices)} choices; there are {len(LETTERS)} letters.")
    _check_characters((question, *choices), place)
    names: Sequence[str] = choices
    if gold == "label":
        names = _several(line, fields["labels"], place)
        if len(names) != len(choices):
            raise DataError(f"{place} has {len(choices)} choices and {len(names)} labels.")
    value = _at(line, fields["gold"], place)
    return Question(question, choices, _place_of(value, gold, names, place), place)


def _place_of(value: Any, gold: Gold, names: Sequence[str], place: str) -> int:
    """Which choice the gold names, counted from 0."""
    found: list[int] = []
    if gold in ("index0", "index1"):
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number or (isinstance(value, str) and value.strip().isdecimal()):
            # Of so many digits none is a choice, and Python reads no more than some thousand.
            number = int(value) - (gold == "index1") if len(str(value).strip()) < 20 else -1
            found = [number] if 0 <= number < len(names) else []
    elif gold == "letter":
        letters = LETTERS[: len(names)]
        if isinstance(value, str) and len(value.strip()) == 1:
            found = [at for at, letter in enumerate(letters) if letter == value.strip().upper()]
    else:
        wanted = _as_text(value)
        found = [at for at, name in enumerate(names) if name == wanted]
    if len(found) == 1:
        return found[0]
    raise DataError(
        f"{place}: the gold is {_short(value)}, which names "
        f"{f'{len(found)} of the' if found else 'none of the'} {len(names)} choices.",
        hint=f"--gold {gold} means {_GOLDS[gold]}. The others: "
        + "; ".join(f"{name}, {meaning}" for name, meaning in _GOLDS.items() if name != gold)
        + ".",
    )


def _check_characters(texts: Sequence[str], place: str) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{place}: {_short(text)} holds half a character, {text[error.start]!r}.",
                hint="JSON spells a character beyond U+FFFF with two \\u escapes; one is missing.",
            ) from None


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}… ({len(shown):,} characters)"


def _several(line: Mapping[str, Any], path: str, place: str) -> tuple[str, ...]:
    """The texts in a list, or in several fields."""
    parts = [_at(line, part, place) for part in path.split("+")]
    values = parts[0] if len(parts) == 1 else parts
    if not isinstance(values, list):
        raise DataError(
            f"{place}: {path} is {values!r}, and no list.",
            hint="Name the list with --mcq-fields, as choices=endings, choices=choices.text or "
            "choices=A+B+C+D.",
        )
    texts = [_as_text(value) for value in values]
    for text, value in zip(texts, values, strict=True):
        if text is None or not text.strip():
            raise DataError(f"{place}: {path} holds {value!r}, and no text.")
    return tuple(text for text in texts if text is not None)


def _as_text(value: Any) -> str | None:
    """A text, or a number as JSON spells it."""
    if isinstance(value, str):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else None


def _at(line: Mapping[str, Any], path: str, place: str) -> Any:
    """What stands in a field, or in a field of a field; of a list, in each of its objects."""
    value: Any = line
    for name in path.split("."):
        inner = value if isinstance(value, list) else [value]
        for item in inner:
            if not isinstance(item, dict) or name not in item:
                known = ", ".join(map(repr, item)) if isinstance(item, dict) else "none"
                raise DataError(
                    f"{place} has no field {path!r}; known there: {known}.",
                    hint="Say where things are with --mcq-fields, as question=ctx,choices=endings,"
                    "gold=label.",
                )
        value = [item[name] for item in inner] if isinstance(value, list) else value[name]
    return value

from __future__ import annotations

import hashlib

import pytest

from llamita.data.held_out import is_held_out, require_both_sides
from llamita.errors import DataError
from llamita.text.documents import Document


def documents(*texts: str) -> list[Document]:
    return [Document(text, "") for text in texts]


TRAIN = next(text for text in map(str, range(100)) if not is_held_out(text, 0.5))
HELD = next(text for text in map(str, range(100)) if is_held_out(text, 0.5))


def test_the_rule_is_the_first_eight_bytes_of_the_texts_sha256() -> None:
    digest = hashlib.sha256("Բարեւ".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    assert is_held_out("Բարեւ", share + 1e-9)
    assert not is_held_out("Բարեւ", share)


def test_about_the_fraction_is_held_out_and_more_of_it_only_adds() -> None:
    texts = [f"text {number}" for number in range(4000)]
    tenth = {text for text in texts if is_held_out(text, 0.1)}
    fifth = {text for text in texts if is_held_out(text, 0.2)}
    assert 320 < len(tenth) < 480
    assert tenth < fifth
    assert not any(is_held_out(text, 0.0) for text in texts)


def test_both_sides_are_found_without_reading_on() -> None:
    stream = iter(documents(TRAIN, HELD, "more", "still more"))
    require_both_sides(stream, 0.5)
    assert len(list(stream)) == 2


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([TRAIN], "the only document falls on the training side"),
        ([TRAIN] * 3, "all 3 documents fall on the training side"),
        ([HELD] * 2, "all 2 documents fall on the held-out side"),
    ],
)
def test_an_empty_side_is_an_error_with_the_count_and_ways_out(
    texts: list[str], message: str
) -> None:
    with pytest.raises(DataError, match=message) as error:
        require_both_sides(documents(*texts), 0.5)
    for way_out in ("--max-document-chars", "--val-fraction"):
        assert way_out in (error.value.hint or "")


def test_nothing_held_out_needs_only_one_document() -> None:
    require_both_sides(documents(TRAIN), 0.0)


def test_nothing_left_after_cleaning_is_an_error() -> None:
    with pytest.raises(DataError, match="no document is left"):
        require_both_sides([], 0.1)

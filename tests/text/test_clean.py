from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llamita.text.clean import CLEANING, drop_empty, normalize, normalize_text
from llamita.text.documents import Document
from llamita.text.pipeline import Pipeline, utf8_length


def test_newlines_become_lf() -> None:
    assert normalize_text("a\r\nb\rc\n\r\nd") == "a\nb\nc\n\nd"


def test_letters_are_composed() -> None:
    assert normalize_text("e\u0301") == "é"


def test_ligatures_quotes_dashes_and_other_scripts_stay_as_they_are() -> None:
    text = "և ﬁ “quotes” – — … 'x' Latin Հայերեն\t\u00a0\u2028½"
    assert normalize_text(text) == text


@given(st.text())
def test_normalizing_twice_changes_nothing_more(text: str) -> None:
    once = normalize_text(text)
    assert normalize_text(once) == once


def test_normalize_keeps_sources() -> None:
    assert list(normalize(iter([Document("a\r\n", "f")]))) == [Document("a\n", "f")]


def test_documents_of_whitespace_alone_are_dropped() -> None:
    documents = [Document(text, "") for text in ("", " \n\t\u3000", " a ")]
    assert [document.text for document in drop_empty(iter(documents))] == [" a "]


def test_a_pipeline_counts_documents_and_bytes_of_each_stage() -> None:
    documents = [Document("a\r\n", "1"), Document("\r\n\r\n", "2"), Document("é", "3")]
    stream, (normalized, dropped) = Pipeline(CLEANING).run(iter(documents))
    assert [document.source for document in stream] == ["1", "3"]
    assert (normalized.documents_in, normalized.bytes_in) == (3, 9)
    assert (normalized.documents_out, normalized.bytes_out) == (3, 6)
    assert (dropped.name, dropped.documents_in, dropped.bytes_in) == ("drop empty", 3, 6)
    assert (dropped.documents_out, dropped.bytes_out) == (2, 4)


def test_a_pipeline_without_stages_passes_documents_on() -> None:
    stream, counts = Pipeline([]).run(iter([Document("a", "1")]))
    assert (list(stream), counts) == ([Document("a", "1")], [])


def test_a_pipeline_is_lazy() -> None:
    taken = []

    def documents():  # type: ignore[no-untyped-def]
        for number in range(3):
            taken.append(number)
            yield Document(str(number), "")

    stream, _ = Pipeline(CLEANING).run(documents())
    next(stream)
    assert taken == [0]


@given(st.text())
def test_utf8_length_is_that_of_the_encoded_text(text: str) -> None:
    assert utf8_length(text) == len(text.encode("utf-8"))

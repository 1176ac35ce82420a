from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llamita.text.splitting import cut_text

TEXTS = st.text(alphabet="ab \n\r🦙", max_size=200)


def chunked(text: str, sizes: list[int]) -> list[str]:
    chunks = []
    for size in sizes:
        chunks.append(text[:size])
        text = text[size:]
    return [*chunks, text]


@given(TEXTS, st.integers(1, 50), st.lists(st.integers(1, 30)))
def test_the_pieces_join_to_the_text_and_do_not_depend_on_the_chunks(
    text: str, limit: int, sizes: list[int]
) -> None:
    pieces = list(cut_text(chunked(text, sizes), limit))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= limit for piece in pieces)
    assert pieces == list(cut_text([text], limit))


@given(TEXTS, st.integers(2, 50))
def test_a_cut_never_parts_a_crlf(text: str, limit: int) -> None:
    pieces = list(cut_text([text], limit))
    for before, after in pairwise(pieces):
        assert not (before.endswith("\r") and after.startswith("\n"))


def test_a_text_within_the_limit_is_one_piece() -> None:
    assert list(cut_text(["ab\n\n", "cd"], 6)) == ["ab\n\ncd"]


def test_cuts_prefer_blank_lines_then_line_ends_then_the_limit() -> None:
    assert list(cut_text(["aaaa\n\nbb\ncc"], 10)) == ["aaaa\n\n", "bb\ncc"]
    assert list(cut_text(["aaaa\r\n\r\nbb\r\ncc"], 13)) == ["aaaa\r\n\r\n", "bb\r\ncc"]
    assert list(cut_text(["aaaaaa\nbbcc"], 10)) == ["aaaaaa\n", "bbcc"]
    assert list(cut_text(["aaaaaabbcc"], 4)) == ["aaaa", "aabb", "cc"]


def test_a_break_in_the_first_half_does_not_make_a_tiny_piece() -> None:
    assert list(cut_text(["a\n\nbbbbbbbbbb"], 10)) == ["a\n\nbbbbbbb", "bbb"]


def test_no_text_is_no_piece() -> None:
    assert list(cut_text([], 5)) == list(cut_text([""], 5)) == []


def test_memory_is_bounded_by_the_limit_not_by_the_text() -> None:
    def chunks() -> Iterator[str]:
        for number in range(300):
            yield f"line {number} of a long text\n" * 4000  # about 100 kB

    tracemalloc.start()
    pieces = sum(1 for _ in cut_text(chunks(), 500_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pieces > 50
    assert peak < 5_000_000


def test_a_letter_is_not_cut_from_its_accents() -> None:
    text = "e" * 10 + "\u0301" + "z" * 5
    assert list(cut_text([text], 10)) == ["e" * 9, "e\u0301zzzzz"]

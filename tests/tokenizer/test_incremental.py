"""Text decoded token by token."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamita.tokenizer import IncrementalDetokenizer, Tokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from tests.tokenizer.tokenizer_texts import MIXED

IDS = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def stream(tokenizer: Tokenizer, ids: list[int], skip_special_tokens: bool = True) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens)
    return [*map(detokenizer.push, ids), detokenizer.finish()]


@IDS
@given(data=st.data(), skip=st.booleans())
def test_pieces_join_to_decode_for_any_ids(
    trained: Tokenizer, data: st.DataObject, skip: bool
) -> None:
    ids = data.draw(st.lists(st.integers(0, trained.vocab_size - 1), max_size=30))
    assert "".join(stream(trained, ids, skip)) == trained.decode(ids, skip)


@IDS
@given(data=st.data(), skip=st.booleans())
def test_pieces_join_to_decode_where_a_leading_space_is_stripped(
    llama_model: bytes, data: st.DataObject, skip: bool
) -> None:
    tokenizer = SentencePieceTokenizer(llama_model)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    assert "".join(stream(tokenizer, ids, skip)) == tokenizer.decode(ids, skip)


def test_no_piece_holds_half_a_character(trained: Tokenizer) -> None:
    for text in (MIXED, "👩‍👩‍👧‍👦", "𝒳"):
        pieces = stream(trained, trained.encode(text))
        assert "".join(pieces) == text
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_appears_with_its_last_byte(trained: Tokenizer) -> None:
    ids = trained.encode("𝒳")
    assert len(ids) > 1
    assert stream(trained, ids) == [*[""] * (len(ids) - 1), "𝒳", ""]


def test_ascii_appears_at_once(trained: Tokenizer) -> None:
    ids = trained.encode("the fox")
    assert stream(trained, ids)[:-1] == [trained.token_bytes(i).decode() for i in ids]


def test_bytes_that_never_become_a_character_come_at_the_end(trained: Tokenizer) -> None:
    ids = trained.encode("𝒳")[:-1]
    assert stream(trained, ids) == [*[""] * len(ids), "\ufffd"]


def test_a_continuation_keeps_its_leading_space(llama_model: bytes) -> None:
    tokenizer = SentencePieceTokenizer(llama_model)
    detokenizer = IncrementalDetokenizer(tokenizer)
    for token_id in tokenizer.encode("once"):
        detokenizer.push(token_id)
    assert "".join(map(detokenizer.push, tokenizer.encode("the man"))) == " the man"

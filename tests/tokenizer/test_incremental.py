"""Text decoded token by token."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamita.tokenizer import IncrementalDetokenizer, Tokenizer, train_tokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from tests.inference.conftest import ByteTokenizer
from tests.tokenizer.tokenizer_texts import MIXED, SPECS

IDS = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module", params=[*SPECS, "llama", "hermes", "byte"])
def tokenizer(
    request: pytest.FixtureRequest, corpus: list[str], llama_model: bytes, hermes_model: bytes
) -> Tokenizer:
    """Every kind: byte-level BPE, SentencePiece with and without bytes, unigram, characters."""
    if request.param == "byte":
        return ByteTokenizer()
    if request.param in SPECS:
        return train_tokenizer(corpus, request.param)
    return SentencePieceTokenizer(llama_model if request.param == "llama" else hermes_model)


def stream(
    tokenizer: Tokenizer,
    ids: list[int],
    skip_special_tokens: bool = True,
    after: list[int] | None = None,
) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens, after or [])
    return [*map(detokenizer.push, ids), detokenizer.finish()]


def some_ids(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Any tokens, or those of single bytes: whole characters, halves and what is no UTF-8."""
    single = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    any_ids = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30)
    bytes_ = st.one_of(
        st.binary(max_size=12),
        st.text(max_size=5).map(str.encode),
        st.lists(st.sampled_from(b"\xe2\x82\xac\xf0\x9f\xa6\x99\xed\xa0\xef\xbf\xbd a")).map(bytes),
    )
    one_by_one = bytes_.map(lambda data: [single[bytes([b])] for b in data if bytes([b]) in single])
    return st.one_of(any_ids, one_by_one)


@IDS
@given(data=st.data(), skip=st.booleans())
def test_pieces_join_to_decode_for_any_ids(
    tokenizer: Tokenizer, data: st.DataObject, skip: bool
) -> None:
    ids = data.draw(some_ids(tokenizer))
    assert "".join(stream(tokenizer, ids, skip)) == tokenizer.decode(ids, skip)


@IDS
@given(data=st.data(), skip=st.booleans())
def test_a_text_goes_on_from_any_prompt(
    tokenizer: Tokenizer, data: st.DataObject, skip: bool
) -> None:
    prompt, ids = data.draw(some_ids(tokenizer)), data.draw(some_ids(tokenizer))
    text = "".join(stream(tokenizer, ids, skip, prompt))
    before, whole = tokenizer.decode(prompt, skip), tokenizer.decode([*prompt, *ids], skip)
    if before + text != whole:  # the text made a character whole that the prompt began
        assert before.endswith("\ufffd")
        assert before[:-1] + text == whole
        assert text[0] != "\ufffd"


@IDS
@given(data=st.data())
def test_what_is_shown_never_changes_and_lags_by_less_than_a_character(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    ids = data.draw(some_ids(tokenizer))
    final = tokenizer.decode(ids)
    shown = ""
    for number, piece in enumerate(stream(tokenizer, ids)[:-1], start=1):
        shown += piece
        assert final.startswith(shown)
        # Of an end that is no text the decoder makes one U+FFFD by byte at most.
        assert tokenizer.decode(ids[:number]).removeprefix(shown) in ("", "\ufffd", "\ufffd" * 2)


@pytest.mark.parametrize("cut", [0, 1, 7, 40])
def test_no_piece_holds_half_a_character(tokenizer: Tokenizer, cut: int) -> None:
    for text in (MIXED, "👩‍👩‍👧‍👦", "𝒳", " two  spaces ", "a\n\n"):
        ids = tokenizer.encode(text)
        whole = tokenizer.decode(ids)
        pieces = stream(tokenizer, ids[cut:], after=ids[:cut])
        assert whole.endswith("".join(pieces))
        assert ("\ufffd" in "".join(pieces)) <= ("\ufffd" in whole)
        if tokenizer.lossy is None:
            assert whole == text


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


def test_half_a_character_of_the_prompt_is_no_part_of_the_text() -> None:
    tokenizer = ByteTokenizer()
    assert stream(tokenizer, [*b"!"], after=[0xF0, 0x9F]) == ["!", ""]
    assert stream(tokenizer, [0xA6, 0x99], after=[0xF0, 0x9F]) == ["", "🦙", ""]
    assert stream(tokenizer, [], after=[0xF0, 0x9F]) == [""]


def test_a_continuation_keeps_its_leading_space(llama_model: bytes) -> None:
    tokenizer = SentencePieceTokenizer(llama_model)
    prompt, ids = tokenizer.encode("once"), tokenizer.encode("the man")
    assert "".join(stream(tokenizer, ids, after=prompt)) == " the man"
    start = [tokenizer.bos_token_id] if tokenizer.bos_token_id is not None else []
    assert "".join(stream(tokenizer, ids, after=start)) == "the man"

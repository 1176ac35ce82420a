"""Cutting long texts at line ends leaves their ids as they are."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.tokenizer import hf, train_tokenizer
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.pre_tokenizers import cut_at_line_ends, splits_at_line_ends
from tests.tokenizer.tokenizer_texts import MIXED

SPACES = ["\n", "\r", "\r\n", "\n\n", " ", "\t", "\u00a0", "\u2028", "\u0085", "\v", "\x1c"]
OTHERS = ["a", "B2", "9", "é", "ն", "中", "'s", "'", "-", "_", ".", "🦙", "\u0301", "<|im_end|>"]
LINES = st.lists(st.sampled_from(SPACES + OTHERS), max_size=60).map("".join)


@pytest.fixture(scope="module")
def tokenizer() -> HFTokenizer:
    made = train_tokenizer([MIXED, "a 'sa\n9\n\né . .\nB2's\n" * 50], "bpe:300")
    assert isinstance(made, HFTokenizer)
    return made


@given(text=st.one_of(LINES, st.text(max_size=60)))
def test_ids_of_the_parts_are_those_of_the_whole(tokenizer: HFTokenizer, text: str) -> None:
    [whole] = tokenizer._encode_whole([text])
    parts = list(cut_at_line_ends(text, 1))
    assert "".join(parts) == text
    assert list(chain.from_iterable(tokenizer._encode_whole(parts))) == whole


def test_long_texts_are_cut_and_give_the_same_ids(
    tokenizer: HFTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = MIXED * 30
    [whole] = tokenizer._encode_whole([text])
    monkeypatch.setattr(hf, "PART_CHARACTERS", 100)
    monkeypatch.setattr(hf, "PARTS_AT_ONCE", 3)
    calls: list[int] = []
    encode = tokenizer._encode_whole
    monkeypatch.setattr(
        tokenizer, "_encode_whole", lambda parts: calls.append(len(parts)) or encode(parts)
    )
    assert tokenizer.encode(text) == whole
    assert len(calls) > 3
    assert max(calls) == 3


def test_parts_have_at_least_the_length_asked_for() -> None:
    parts = list(cut_at_line_ends("ab\ncd\nef\ngh", 5))
    assert parts == ["ab\ncd\n", "ef\ngh"]


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": None},
        {"added_tokens": [{"id": 3, "content": "a\nb", "special": False}]},
    ],
)
def test_other_pipelines_are_not_cut(tokenizer: HFTokenizer, change: dict[str, object]) -> None:
    definition = json.loads(tokenizer._json)
    assert splits_at_line_ends(definition)
    assert not splits_at_line_ends({**definition, **change})


def test_the_gpt2_pattern_is_not_cut() -> None:
    made = train_tokenizer([MIXED * 5], "bpe:300", pre_tokenizer="gpt-2")
    assert not splits_at_line_ends(json.loads(made._json))  # type: ignore[attr-defined]

"""Training: what a spec means, what is refused, and how the text is sampled."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from llamita.errors import TokenizerError
from llamita.tokenizer import train_tokenizer
from llamita.tokenizer.sample import sample_texts, split_at_lines
from llamita.tokenizer.train import TokenizerSpec, parse_spec
from tests.tokenizer.tokenizer_texts import MIXED


def test_specs_name_a_kind_and_a_size() -> None:
    assert parse_spec("bpe:8192") == TokenizerSpec("bpe", 8192)
    assert parse_spec("unigram:500") == TokenizerSpec("unigram", 500)
    assert parse_spec("char") == TokenizerSpec("char", None)
    assert parse_spec("char:300") == TokenizerSpec("char", 300)
    assert parse_spec("models/char") is None
    assert parse_spec("bpe:") is None


@pytest.mark.parametrize("spec", ["bpe:500", "spm:600", "unigram:450", "char:300"])
def test_the_vocabulary_has_the_size_asked_for(spec: str, corpus: list[str]) -> None:
    assert train_tokenizer(corpus, spec).vocab_size == int(spec.partition(":")[2])


@pytest.mark.parametrize("spec", ["bpe:100", "spm:100", "unigram:259", "char:5", "bpe:2000000"])
def test_an_impossible_size_is_refused_with_the_possible_ones(spec: str) -> None:
    with pytest.raises(TokenizerError, match="260 to 1000000"):
        train_tokenizer(["text"], spec)


@pytest.mark.parametrize("kind", ["bpe", "spm", "unigram", "char"])
def test_too_little_text_is_refused_with_the_largest_size_that_works(
    kind: str, corpus: list[str]
) -> None:
    with pytest.raises(TokenizerError, match="too small for a vocabulary of 50000") as caught:
        train_tokenizer(corpus, f"{kind}:50000")
    assert caught.value.hint is not None
    largest = int(caught.value.hint.split()[4].rstrip(","))
    assert train_tokenizer(corpus, f"{kind}:{largest}").vocab_size == largest


def test_more_characters_than_fit_are_refused_with_the_smallest_size(corpus: list[str]) -> None:
    with pytest.raises(TokenizerError, match="characters of this text") as caught:
        train_tokenizer(corpus, "spm:262")
    assert caught.value.hint is not None
    smallest = int(caught.value.hint.split()[-1].rstrip("."))
    assert train_tokenizer(corpus, f"spm:{smallest}").vocab_size == smallest


@pytest.mark.parametrize("spec", ["bpe:300", "spm:300", "unigram:300", "char"])
@pytest.mark.parametrize("texts", [[], [""]])
def test_no_text_is_refused(spec: str, texts: list[str]) -> None:
    with pytest.raises(TokenizerError, match="no text"):
        train_tokenizer(texts, spec)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TokenizerError, match="'wordpiece:500' is neither"):
        train_tokenizer(["text"], "wordpiece:500")


def test_sentencepiece_trains_silently(
    corpus: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    train_tokenizer(corpus, "spm:600")
    with pytest.raises(TokenizerError):
        train_tokenizer(corpus, "spm:60000")
    assert capfd.readouterr() == ("", "")


def test_sentencepiece_learns_from_long_lines_and_reserved_characters() -> None:
    tokenizer = train_tokenizer(["հրաշալի \0 ▅ ▁ օրեր; " * 190], "spm:290")
    assert len(tokenizer.encode("հրաշալի օրեր")) < len("հրաշալի օրեր") / 2


def test_byte_level_bpe_does_not_learn_what_occurs_once() -> None:
    with pytest.raises(TokenizerError, match="too small"):
        train_tokenizer(["qwertyuiop"], "bpe:260")


def test_digits_are_single_tokens(corpus: list[str]) -> None:
    for spec in ("bpe:500", "spm:600", "unigram:450"):
        tokenizer = train_tokenizer([*corpus, "1234 1234 12341234 " * 200], spec)
        pieces = [tokenizer.token_bytes(i).strip() for i in tokenizer.encode("1234")]
        assert [piece for piece in pieces if piece] == [b"1", b"2", b"3", b"4"]


def test_char_has_a_token_for_every_character_and_bytes_for_others() -> None:
    tokenizer = train_tokenizer(["aé👋"], "char")
    assert tokenizer.vocab_size == 3 + 256 + 3
    assert [tokenizer.token_bytes(i) for i in tokenizer.encode("👋éab")] == [
        "👋".encode(),
        "é".encode(),
        b"a",
        b"b",
    ]
    assert len(tokenizer.encode("ü")) == 2


def test_char_with_a_size_keeps_the_commonest_characters() -> None:
    tokenizer = train_tokenizer(["éééüüß"], f"char:{3 + 256 + 2}")
    assert [len(tokenizer.encode(character)) for character in "éüß"] == [1, 1, 2]


def test_the_log_says_how_much_text_was_used(corpus: list[str]) -> None:
    lines: list[str] = []
    train_tokenizer(corpus, "bpe:300", sample_bytes=10_000, log=lines.append)
    train_tokenizer(corpus, "bpe:300", log=lines.append)
    total = f"{sum(len(text.encode()) for text in corpus):,}"
    assert f"of {total} bytes" in lines[0]
    assert f"all {total} bytes" in lines[1]


def test_a_sample_is_uniform_over_the_stream_and_bounded() -> None:
    texts = [f"{number:07}\n" * 100 for number in range(2000)]
    sample = sample_texts(texts, 160_000, seed=1)
    assert sample.total_bytes == 1_600_000
    assert 159_000 < sample.used_bytes <= 160_000
    numbers = [int(chunk[:7]) for chunk in sample]
    assert numbers == sorted(numbers)
    assert 900 < sum(numbers) / len(numbers) < 1100
    assert sample == sample_texts(texts, 160_000, seed=1)
    assert sample != sample_texts(texts, 160_000, seed=2)


def test_sampling_memory_does_not_grow_with_the_text() -> None:
    def stream() -> Iterator[str]:
        for number in range(200):
            yield f"{number} " * 20_000

    tracemalloc.start()
    sample_texts(stream(), 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000


@pytest.mark.parametrize("text", [MIXED * 50, "x" * 10_000, "a b " * 5000, "\n" * 9000, ""])
def test_long_texts_are_cut_without_losing_a_character(text: str) -> None:
    parts = list(split_at_lines(text, 1000))
    assert "".join(parts) == text
    assert all(0 < len(part) <= 1000 for part in parts)


def test_long_texts_are_cut_at_lines_else_at_spaces() -> None:
    assert list(split_at_lines("one two\nthree four", 10)) == ["one two\n", "three four"]
    assert list(split_at_lines("one two three", 8)) == ["one two", " three"]

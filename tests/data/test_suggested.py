"""How a text is prepared that nobody said anything about, and a sample of a large one."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from llamita.data.suggested import prepare_as_suggested, sample_text, suggested_preparation
from llamita.errors import TokenizerError
from llamita.text.documents import MAX_DOCUMENT_CHARS, read_documents
from llamita.text.sources import find_text_files
from tests.conftest import write_documents


def test_the_vocabulary_follows_the_size_within_bounds(tmp_path: Path) -> None:
    for name, size, expected in (("s", 1_000, 320), ("m", 256_000, 1000), ("l", 2_000_000, 4096)):
        path = tmp_path / f"{name}.txt"
        path.write_text("a" * size)
        suggestion = suggested_preparation(find_text_files([path]).files)
        assert suggestion.tokenizers == (f"bpe:{expected}", "char")
    asked = suggested_preparation(find_text_files([tmp_path]).files, "spm:400")
    assert asked.tokenizers == ("spm:400",)


def test_few_files_are_cut_and_many_are_not(tmp_path: Path) -> None:
    texts = write_documents(tmp_path / "texts", 9, seed=0)
    assert suggested_preparation(find_text_files([texts]).files).max_document_chars < 1000
    (texts / "more.txt").write_text("One more.")
    files = find_text_files([texts]).files
    assert suggested_preparation(files).max_document_chars == MAX_DOCUMENT_CHARS


def test_characters_serve_where_there_are_too_few_words(tmp_path: Path) -> None:
    texts = tmp_path / "text.txt"
    draw = random.Random(0)
    texts.write_text("\n\n".join(" ".join(draw.choices(("no", "yes"), k=9)) for _ in range(300)))
    suggestion = suggested_preparation(find_text_files([texts]).files)
    manifest = prepare_as_suggested([texts], tmp_path / "data", suggestion)
    assert manifest.settings is not None
    assert manifest.settings.tokenizer == "char"
    asked = suggested_preparation(find_text_files([texts]).files, "bpe:4096")
    with pytest.raises(TokenizerError):
        prepare_as_suggested([texts], tmp_path / "other", asked)


def test_what_characters_served_is_found_done_the_second_time(tmp_path: Path) -> None:
    texts = tmp_path / "text.txt"
    draw = random.Random(0)
    texts.write_text("\n\n".join(" ".join(draw.choices(("abab", "ba"), k=9)) for _ in range(300)))
    suggestion = suggested_preparation(find_text_files([texts]).files)
    made = prepare_as_suggested([texts], tmp_path / "data", suggestion)
    assert made.tokenizer.kind == "char"
    assert prepare_as_suggested([texts], tmp_path / "data", suggestion) == made


def test_a_sample_has_parts_of_many_files_and_says_how_much_it_is(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(40):
        (texts / f"{number}.txt").write_text(f"text {number}. " * 500)
    size = sum(path.stat().st_size for path in texts.iterdir())
    out = tmp_path / "sample.jsonl"
    share = sample_text([texts], size // 4, MAX_DOCUMENT_CHARS, out)
    assert 0.25 <= share < 0.3
    documents = list(read_documents([out]))
    assert len(documents) == pytest.approx(40 * share, abs=1)
    numbers = {int(document.text.split()[1].strip(".")) for document in documents}
    assert max(numbers) - min(numbers) > 10
    assert sample_text([texts], 10 * size, MAX_DOCUMENT_CHARS, out) == 1.0


def test_of_one_large_file_a_sample_is_its_beginning(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"Paragraph {n} of many.\n\n" for n in range(50_000)))
    out = tmp_path / "sample.jsonl"
    share = sample_text([text], 200_000, 2000, out)
    documents = list(read_documents([out]))
    taken = sum(len(document.text) for document in documents)
    assert taken == pytest.approx(200_000, abs=2000)
    assert share == pytest.approx(taken / text.stat().st_size, rel=0.02)
    assert documents[0].text.startswith("Paragraph 0 ")
    assert max(len(document.text) for document in documents) <= 2000


def test_of_compressed_text_its_text_counts(tmp_path: Path) -> None:
    draw = random.Random(0)
    content = "".join(f"Number {draw.randrange(10**6)} of many more.\n\n" for _ in range(150_000))
    text, out = tmp_path / "text.txt.gz", tmp_path / "sample.jsonl"
    text.write_bytes(gzip.compress(content.encode(), 1))
    share = sample_text([text], 400_000, 2000, out)
    taken = sum(len(document.text) for document in read_documents([out]))
    assert taken == pytest.approx(400_000, abs=2000)
    assert share == pytest.approx(taken / len(content), rel=0.1)


def test_chats_stay_chats_in_a_sample(tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    chat = {"messages": said}
    chats.write_text(json.dumps(chat) + "\n")
    out = tmp_path / "sample.jsonl"
    sample_text([chats], 1000, MAX_DOCUMENT_CHARS, out)
    assert json.loads(out.read_text())["messages"] == chat["messages"]

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import DataError
from llamita.text import documents as documents_module
from llamita.text.documents import Document, ReadCounts, read_documents, read_files
from llamita.text.sources import find_text_files


def jsonl(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def texts(*paths: Path, **options: object) -> list[str]:
    return [document.text for document in read_documents(list(paths), **options)]  # type: ignore[arg-type]


def test_a_text_file_is_one_document_and_a_jsonl_line_another(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    jsonl(tmp_path / "b.jsonl", {"text": "three"}, {"text": "four"})
    root = tmp_path.as_posix()
    assert list(read_documents([tmp_path])) == [
        Document("one\n\ntwo\n", f"{root}/a.txt"),
        Document("three", f"{root}/b.jsonl:1"),
        Document("four", f"{root}/b.jsonl:2"),
    ]


def test_a_long_document_is_cut_into_numbered_pieces(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("aaaa\n\nbbbb\n\ncccc")
    jsonl(tmp_path / "b.jsonl", {"text": "dddd\n\neeee"})
    pieces = list(read_documents([tmp_path], max_document_chars=7))
    assert [piece.text for piece in pieces] == ["aaaa\n\n", "bbbb\n\n", "cccc", "dddd\n\n", "eeee"]
    assert [piece.source.rpartition("/")[2] for piece in pieces] == [
        "a.txt",
        "a.txt#2",
        "a.txt#3",
        "b.jsonl:1",
        "b.jsonl:1#2",
    ]


def test_another_field_of_jsonl(tmp_path: Path) -> None:
    assert texts(jsonl(tmp_path / "a.jsonl", {"body": "x", "text": "y"}), field="body") == ["x"]


def test_a_missing_field_names_line_fields_and_option(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"text": "x"}, {"content": "y", "id": 1})
    with pytest.raises(
        DataError, match=r"a\.jsonl:2 has no field 'text'.*'content', 'id'"
    ) as error:
        texts(path)
    assert "--field" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a" "b"}', r"a\.jsonl:3 is not JSON: Expecting ',' delimiter \(column 14\)"),
        ('["a"]', "a list, not a JSON object"),
        ('"a"', "a string, not a JSON object"),
        ('{"text": null}', "'text' is null, not text"),
        ('{"text": 5}', "'text' is a number, not text"),
        ('{"text": true}', "'text' is true or false, not text"),
        ('{"text": ["a"]}', "'text' is a list, not text"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"text": ' + "1" * 5000 + "}", "cannot be read as JSON"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "ok"}\n\n' + line + "\n")
    with pytest.raises(DataError, match=message):
        texts(tmp_path)


def test_blank_lines_and_crlf_in_jsonl_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n  \n{"text": "b"}')
    assert texts(tmp_path) == ["a", "b"]


def test_unicode_line_separators_do_not_end_a_jsonl_line(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\x85d\x0ce"
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}, ensure_ascii=False))
    assert texts(tmp_path) == [text]


def test_lone_surrogates_are_replaced_and_counted_and_pairs_kept(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a\\ud83d b\\ude00 \\ud83e\\udd99"}')
    counts = ReadCounts()
    [document] = read_files(find_text_files([tmp_path]).files, counts=counts)
    assert document.text == "a\ufffd b\ufffd 🦙"
    assert counts.replaced_surrogates == 2


def test_a_lenient_encoding_cannot_bring_in_lone_surrogates(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a+2D0-b")
    assert texts(tmp_path, encoding="utf-7") == ["a\ufffdb"]


def test_a_line_without_end_is_an_error_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "MAX_LINE_CHARS", 1000)
    (tmp_path / "a.jsonl").write_text('{"text": "' + "x" * 2000)
    with pytest.raises(DataError, match=r"line 1 of .*a\.jsonl is longer than 1,000"):
        texts(tmp_path)


def test_empty_files_among_others_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.txt").write_bytes(b"")
    (tmp_path / "c.txt").write_bytes(b"\xef\xbb\xbf")
    (tmp_path / "d.jsonl").write_text("\n\n")
    (tmp_path / "e.txt.gz").write_bytes(gzip.compress(b""))
    counts = ReadCounts()
    assert len(list(read_files(find_text_files([tmp_path]).files, counts=counts))) == 1
    assert counts.empty_files == 4


def test_no_document_at_all_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(DataError, match=r"no text in .*a\.txt"):
        texts(tmp_path)


def test_missing_paths_are_found_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(DataError, match=r"gone\.md"):
        read_documents([tmp_path / "a.txt", tmp_path / "gone.md"])


def test_bytes_read_add_up_over_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 1000)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"y" * 5000))
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    counts = ReadCounts()
    list(read_files(find_text_files([tmp_path]).files, counts=counts))
    assert counts.bytes_read == total


def test_a_long_text_file_streams_in_bounded_memory(tmp_path: Path) -> None:
    paragraph = "A line of text that is repeated many times.\n" * 20 + "\n"
    (tmp_path / "long.txt").write_text(paragraph * 35_000)  # 31 MB
    tracemalloc.start()
    size = sum(len(text.text) for text in read_documents([tmp_path], max_document_chars=100_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == len(paragraph) * 35_000
    assert peak < 3_000_000


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_jsonl_gives_back_any_texts(
    tmp_path_factory: pytest.TempPathFactory, written: list[str]
) -> None:
    path = jsonl(tmp_path_factory.mktemp("t") / "a.jsonl", *({"text": text} for text in written))
    assert texts(path) == written

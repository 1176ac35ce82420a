from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from llamita.errors import DataError
from llamita.text.sources import describe_skipped, find_text_files


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")


def names(root: Path, *paths: Path) -> list[str]:
    found = find_text_files(list(paths) or [root])
    return [file.path.relative_to(root).as_posix() for file in found.files]


def test_a_folder_is_read_recursively_in_sorted_order_without_hidden_files(tmp_path: Path) -> None:
    touch(
        tmp_path, "b.md", "a.txt", "z/2.jsonl.gz", "z/1.txt.zst", "c/UP.TXT", ".h.txt", ".g/a.txt"
    )
    assert names(tmp_path) == ["a.txt", "b.md", "c/UP.TXT", "z/1.txt.zst", "z/2.jsonl.gz"]


def test_folders_are_visited_in_sorted_order(tmp_path: Path) -> None:
    folders = ["m", "z", "c", "x", "a", "q", "b", "y", "k", "d", "w", "e"]
    touch(tmp_path, *(f"{name}/text.txt" for name in folders))
    assert names(tmp_path) == [f"{name}/text.txt" for name in sorted(folders)]


def test_kind_and_compression_come_from_the_name(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b.md.gz", "c.jsonl.zst")
    found = [(file.kind, file.compression) for file in find_text_files([tmp_path]).files]
    assert found == [("text", ""), ("text", ".gz"), ("jsonl", ".zst")]


def test_other_files_of_a_folder_are_counted_by_suffix(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b.pdf", "d/c.PDF", "e.tar.gz", "LICENSE")
    skipped = find_text_files([tmp_path]).skipped
    assert skipped == {".pdf": 2, ".gz": 1, "without suffix": 1}
    assert describe_skipped(skipped).startswith("2 .pdf, ")


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b.txt")
    assert names(tmp_path, tmp_path / "b.txt", tmp_path) == ["b.txt", "a.txt"]


def test_a_named_file_without_suffix_is_plain_text(tmp_path: Path) -> None:
    touch(tmp_path, "enwik8")
    assert find_text_files([tmp_path / "enwik8"]).files[0].kind == "text"


def test_what_llamita_wrote_into_a_source_folder_is_not_read(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "DATA/validation.jsonl", "mine/b.txt")
    (tmp_path / "DATA/manifest.json").write_text(json.dumps({"llamita_version": "1"}))
    (tmp_path / "mine/manifest.json").write_text("{}")
    assert names(tmp_path) == ["a.txt", "mine/b.txt"]


def test_a_named_file_of_another_kind_is_refused_with_the_kinds_that_are_read(
    tmp_path: Path,
) -> None:
    touch(tmp_path, "a.pdf")
    with pytest.raises(DataError, match=r"a\.pdf") as error:
        find_text_files([tmp_path / "a.pdf"])
    assert ".jsonl" in (error.value.hint or "")


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file or folder .*gone\.txt"):
        find_text_files([tmp_path / "gone.txt"])


def test_a_folder_without_text_says_what_it_holds_instead(tmp_path: Path) -> None:
    touch(tmp_path, "a.pdf")
    with pytest.raises(DataError, match=r"passed over: 1 \.pdf"):
        find_text_files([tmp_path])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_because_text_is_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(DataError, match="not a regular file"):
        find_text_files([tmp_path / "pipe.txt"])

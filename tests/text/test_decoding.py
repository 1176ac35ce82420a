from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import DataError
from llamita.text import decoding
from llamita.text.decoding import check_encoding, read_text
from llamita.text.sources import TextFile

TEXT = "Բարեւ, wörld 🦙\r\n" * 50


def text_file(path: Path, data: bytes) -> TextFile:
    path.write_bytes(data)
    return TextFile(path, "text", path.suffix if path.suffix in (".gz", ".zst") else "")


def read(file: TextFile, encoding: str = "utf-8") -> str:
    return "".join(read_text(file, encoding))


def compress(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data)
    if suffix == ".zst":
        return zstandard.ZstdCompressor().compress(data)
    return data


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 18])
def test_text_comes_back_whole_whatever_the_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, chunk: int
) -> None:
    monkeypatch.setattr(decoding, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(decoding, "ZSTD_INPUT_BYTES", chunk)
    file = text_file(tmp_path / f"a{suffix}", compress(TEXT.encode(), suffix))
    assert read(file) == TEXT


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_joined_compressed_files_are_read_to_the_end(tmp_path: Path, suffix: str) -> None:
    data = compress(b"one ", suffix) + compress(b"two", suffix)
    assert read(text_file(tmp_path / f"a{suffix}", data)) == "one two"


def test_skippable_zstd_frames_are_skipped(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"meta"
    file = text_file(tmp_path / "a.zst", skippable + compress(b"text", ".zst") + skippable)
    assert read(file) == "text"


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("missing", [1, 9, 40])
def test_a_truncated_compressed_file_is_an_error(tmp_path: Path, suffix: str, missing: int) -> None:
    data = compress(TEXT.encode(), suffix)[:-missing]
    with pytest.raises(DataError, match="ends in the middle"):
        read(text_file(tmp_path / f"a{suffix}", data))


@pytest.mark.parametrize(("suffix", "format_name"), [(".gz", "gzip"), (".zst", "zstd")])
def test_a_file_with_the_wrong_compression_suffix_is_an_error(
    tmp_path: Path, suffix: str, format_name: str
) -> None:
    with pytest.raises(DataError, match=rf"a\{suffix} is not a whole {format_name} file"):
        read(text_file(tmp_path / f"a{suffix}", b"just text, not compressed at all"))


def test_a_flipped_byte_in_a_gzip_file_is_an_error(tmp_path: Path) -> None:
    data = bytearray(compress(TEXT.encode(), ".gz"))
    data[-6] ^= 1  # in the checksum
    with pytest.raises(DataError, match="not a whole gzip file"):
        read(text_file(tmp_path / "a.gz", bytes(data)))


@pytest.mark.parametrize("chunk", [1, 5, 1 << 18])
def test_invalid_utf8_names_file_byte_and_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(decoding, "CHUNK_BYTES", chunk)
    file = text_file(tmp_path / "a.txt", "äöü".encode() + b"caf\xe9 au lait")
    with pytest.raises(DataError, match=r"a\.txt is not utf-8 text: byte 9 \(0xe9\)") as error:
        read(file)
    assert "--encoding" in (error.value.hint or "")
    assert read(file, "latin-1").endswith("café au lait")


def test_utf8_cut_in_the_middle_of_a_character_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"byte 1 \(0xc3\)"):
        read(text_file(tmp_path / "a.txt", b"a\xc3"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("chunk", [1, 1 << 18])
def test_a_byte_order_mark_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, chunk: int
) -> None:
    monkeypatch.setattr(decoding, "CHUNK_BYTES", chunk)
    data = "\ufeffab\ufeffc".encode("utf-16-le" if encoding == "utf-16" else "utf-8")
    assert read(text_file(tmp_path / "a.txt", data), encoding) == "ab\ufeffc"


def test_utf16_read_as_utf8_is_told_from_its_mark(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="UTF-16") as error:
        read(text_file(tmp_path / "a.txt", "text".encode("utf-16")))
    assert "--encoding utf-16" in (error.value.hint or "")


def test_a_binary_file_that_happens_to_be_valid_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="looks like a binary file"):
        read(text_file(tmp_path / "a.txt", b"\x7fELF" + b"\0\1\0\2" * 20))


@pytest.mark.parametrize("encoding", ["klingon", "base64"])
def test_an_unknown_encoding_is_named(encoding: str) -> None:
    with pytest.raises(DataError, match=encoding):
        check_encoding(encoding)


def test_bytes_read_are_those_on_the_disk(tmp_path: Path) -> None:
    data = compress(TEXT.encode(), ".gz")
    seen: list[int] = []
    list(read_text(text_file(tmp_path / "a.gz", data), "utf-8", seen.append))
    assert seen[-1] == len(data)


@given(st.text(), st.sampled_from(["", ".gz", ".zst"]), st.integers(1, 20))
def test_any_text_survives_any_compression(
    tmp_path_factory: pytest.TempPathFactory, text: str, suffix: str, chunk: int
) -> None:
    if text.startswith("\ufeff") or text.count("\0") > 0.01 * len(text):
        return
    file = text_file(tmp_path_factory.mktemp("t") / f"a{suffix}", compress(text.encode(), suffix))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "CHUNK_BYTES", chunk)
        patch.setattr(decoding, "ZSTD_INPUT_BYTES", chunk)
        assert read(file) == text

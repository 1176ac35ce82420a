from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from llamita.data.dataset import TokenDataset
from llamita.data.manifest import Manifest, dtype_for
from llamita.data.shards import ShardWriter
from llamita.errors import DataError
from llamita.files import read_json, sha256_file, write_json


def with_separators(documents: list[list[int]], separator: int) -> list[int]:
    tokens = [separator]
    for document in documents:
        tokens += [*document, separator]
    return tokens


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    documents=st.lists(st.lists(st.integers(1, 99_999), max_size=20), min_size=1, max_size=8),
    vocab_size=st.sampled_from([65_536, 100_000]),
    shard_tokens=st.integers(1, 30),
    data=st.data(),
)
def test_what_was_written_is_read_back_over_any_shard_borders(
    tmp_path_factory: pytest.TempPathFactory,
    write_data: Any,
    documents: list[list[int]],
    vocab_size: int,
    shard_tokens: int,
    data: st.DataObject,
) -> None:
    documents = [[token % vocab_size for token in document] for document in documents]
    directory = tmp_path_factory.mktemp("data")
    write_data(directory, documents, vocab_size=vocab_size, shard_tokens=shard_tokens)
    expected = with_separators(documents, 0)
    dataset = TokenDataset.open(directory, "train")
    assert dataset.tokens == len(expected)
    assert dataset.read(0, dataset.tokens).tolist() == expected
    start = data.draw(st.integers(0, len(expected)))
    length = data.draw(st.integers(0, len(expected) - start))
    assert dataset.read(start, length).tolist() == expected[start : start + length]


def test_ids_above_65535_do_not_wrap(tmp_path: Path, write_data: Any) -> None:
    manifest = write_data(tmp_path, [[65_535, 65_536, 131_071]], vocab_size=131_072)
    assert manifest.dtype == "uint32"
    dataset = TokenDataset.open(tmp_path, "train")
    tokens = dataset.read(0, dataset.tokens)
    assert tokens.dtype == np.int64
    assert tokens.tolist() == [0, 65_535, 65_536, 131_071, 0]


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(300, "uint16"), (65_536, "uint16"), (65_537, "uint32")]
)
def test_the_vocabulary_chooses_the_dtype(vocab_size: int, dtype: str) -> None:
    assert dtype_for(vocab_size) == dtype


@pytest.mark.parametrize("token_id", [-1, 300, 65_536])
def test_an_id_outside_the_vocabulary_is_refused_not_wrapped(
    tmp_path: Path, write_data: Any, token_id: int
) -> None:
    with pytest.raises(DataError, match=f"token id {token_id} is outside the vocabulary of 300"):
        write_data(tmp_path, [[1, token_id]], vocab_size=300)


def test_files_are_little_endian_without_header(tmp_path: Path, write_data: Any) -> None:
    write_data(tmp_path, [[0x0102]], vocab_size=1000)
    assert (tmp_path / "train-00000.bin").read_bytes() == b"\0\0\x02\x01\0\0"


def test_shards_are_listed_with_their_hashes(tmp_path: Path, write_data: Any) -> None:
    manifest = write_data(tmp_path, [[1, 2, 3], [4]], shard_tokens=4)
    assert [(shard.file, shard.tokens) for shard in manifest.shards] == [
        ("train-00000.bin", 4),
        ("train-00001.bin", 3),
    ]
    for shard in manifest.shards:
        assert shard.sha256 == sha256_file(tmp_path / shard.file)


def test_a_split_without_documents_has_no_file(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, "val", 300, 0) as writer:
        pass
    assert (writer.shards, writer.counts.tokens, list(tmp_path.iterdir())) == ([], 0, [])


def test_the_manifest_is_read_back_as_written(tmp_path: Path, write_data: Any) -> None:
    manifest = write_data(tmp_path, [[1, 2, 3], [4, 5, 6]])
    loaded = Manifest.load(tmp_path)
    assert loaded == manifest
    assert read_json(tmp_path / "manifest.json")["fingerprint"] == loaded.fingerprint
    assert loaded.bytes_per_token == 1.0


def test_the_fingerprint_changes_with_tokens_and_tokenizer_alone(
    tmp_path: Path, write_data: Any
) -> None:
    first = write_data(tmp_path / "a", [[1, 2]])
    assert write_data(tmp_path / "b", [[1, 2]]).fingerprint == first.fingerprint
    assert write_data(tmp_path / "c", [[1, 3]]).fingerprint != first.fingerprint
    other = first.model_copy(deep=True)
    other.llamita_version = "9"
    assert other.fingerprint == first.fingerprint
    other.tokenizer.fingerprint = "sha256:1"
    assert other.fingerprint != first.fingerprint


def test_a_directory_without_manifest_is_incomplete_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no manifest\.json") as error:
        Manifest.load(tmp_path)
    assert "llamita prepare" in (error.value.hint or "")
    with pytest.raises(DataError, match="no data directory"):
        Manifest.load(tmp_path / "gone")


def test_a_manifest_of_another_kind_is_refused(tmp_path: Path, write_data: Any) -> None:
    write_data(tmp_path, [[1]])
    content = read_json(tmp_path / "manifest.json")
    write_json(tmp_path / "manifest.json", {**content, "kind": "run"})
    with pytest.raises(DataError, match="not the manifest of data: kind"):
        Manifest.load(tmp_path)

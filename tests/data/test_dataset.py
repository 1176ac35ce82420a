from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamita.data.dataset import TokenDataset
from llamita.data.manifest import Manifest
from llamita.errors import DataError
from llamita.files import read_json, write_json


@pytest.fixture
def dataset(tmp_path: Path, write_data: Any) -> TokenDataset:
    write_data(tmp_path, [list(range(1, 100))], shard_tokens=30)
    return TokenDataset.open(tmp_path, "train")


def test_open_knows_the_tokens_vocabulary_and_separator(dataset: TokenDataset) -> None:
    assert (dataset.tokens, dataset.vocab_size, dataset.separator_id) == (101, 300, 0)


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (100, 2), (0, 102), (5, -1)])
def test_reading_outside_the_split_is_an_index_error(
    dataset: TokenDataset, start: int, length: int
) -> None:
    with pytest.raises(IndexError):
        dataset.read(start, length)


def test_a_truncated_shard_is_named_with_both_sizes(dataset: TokenDataset) -> None:
    path = dataset.directory / "train-00001.bin"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"train-00001\.bin has 56 bytes .* says 60"):
        TokenDataset.open(dataset.directory, "train")


def test_a_missing_shard_is_named(dataset: TokenDataset) -> None:
    (dataset.directory / "train-00002.bin").unlink()
    with pytest.raises(DataError, match=r"train-00002\.bin is missing"):
        TokenDataset.open(dataset.directory, "train")


def test_shards_that_do_not_add_up_to_the_manifests_tokens_are_refused(
    dataset: TokenDataset,
) -> None:
    path = dataset.directory / "manifest.json"
    manifest = read_json(path)
    del manifest["shards"][1]
    write_json(path, manifest)
    with pytest.raises(DataError, match="counts 101 train tokens, but its shards hold 71"):
        TokenDataset.open(dataset.directory, "train")


def test_a_dtype_that_does_not_fit_the_vocabulary_is_refused(dataset: TokenDataset) -> None:
    path = dataset.directory / "manifest.json"
    manifest = read_json(path)
    manifest["tokenizer"]["vocab_size"] = 70_000
    write_json(path, manifest)
    with pytest.raises(DataError, match="tokens are uint16, but a vocabulary of 70,000"):
        TokenDataset.open(dataset.directory, "train")


def test_a_missing_split_names_the_way_out(dataset: TokenDataset) -> None:
    with pytest.raises(DataError, match="has no val split") as error:
        TokenDataset.open(dataset.directory, "val")
    assert "--val-fraction" in (error.value.hint or "")


def test_blocks_count_the_token_after_the_last_input(dataset: TokenDataset) -> None:
    assert dataset.blocks(100) == 1
    assert dataset.blocks(50) == 2
    assert dataset.blocks(51) == 1


def test_a_split_shorter_than_a_block_names_the_numbers(dataset: TokenDataset) -> None:
    with pytest.raises(DataError, match=r"has 101 tokens, fewer than one block of 101 \+ 1"):
        dataset.blocks(101)


def test_offsets_above_two_to_the_32_address_the_right_tokens(
    tmp_path: Path, write_data: Any
) -> None:
    """A sparse file stands for a shard of more than 2**32 tokens."""
    write_data(tmp_path, [[1]])
    tokens = (1 << 32) + 10
    with (tmp_path / "train-00000.bin").open("wb") as file:
        file.truncate(tokens * 2)
        file.seek((tokens - 3) * 2)
        file.write(np.array([7, 8, 9], dtype="<u2").tobytes())
    manifest = read_json(tmp_path / "manifest.json")
    manifest["shards"][0]["tokens"] = manifest["train"]["tokens"] = tokens
    write_json(tmp_path / "manifest.json", manifest)
    dataset = TokenDataset.open(tmp_path, "train")
    assert dataset.read(tokens - 4, 4).tolist() == [0, 7, 8, 9]
    assert dataset.read(7, 3).tolist() == [0, 0, 0]


def test_tokens_past_two_to_the_32_are_read_where_they_lie(dataset: TokenDataset) -> None:
    """A shard of more than 2^32 tokens, as a file with a hole: it takes no room on the disk."""
    place, path = 2**32 + 7, dataset.directory / "train-00000.bin"
    with path.open("r+b") as file:
        file.seek(2 * place)
        file.write(np.array([11, 22, 33], dtype="<u2").tobytes())
    manifest = read_json(dataset.directory / "manifest.json")
    manifest["train"]["tokens"] += place + 3 - manifest["shards"][0]["tokens"]
    manifest["shards"][0]["tokens"] = place + 3
    write_json(dataset.directory / "manifest.json", manifest)
    large = TokenDataset.open(dataset.directory, "train")
    following = dataset.read(30, 2).tolist()
    assert large.read(place, 5).tolist() == [11, 22, 33, *following]
    assert large.blocks(context_length=2**20) >= 2**12


def test_data_of_earlier_versions_keeps_its_fingerprint(tmp_path: Path, write_data: Any) -> None:
    """What a run recorded of its data must be found again; new fields change nothing."""
    manifest = write_data(tmp_path, [[1, 2, 3]])
    shard = manifest.shards[0].sha256
    content = (
        '{"tokenizer": "sha256:0", "dtype": "uint16", "separator_id": 0, '
        f'"shards": [["train", 5, "{shard}"]]}}'
    )
    expected = f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"
    assert manifest.fingerprint == expected
    written = read_json(tmp_path / "manifest.json")
    del written["chats"], written["settings"]["loss"]
    for counts in (written["train"], written["val"]):
        del counts["learned_tokens"], counts["learned_bytes"]
    for one in written["shards"]:
        del one["mask"], one["mask_sha256"]
    write_json(tmp_path / "manifest.json", written)
    assert Manifest.load(tmp_path).fingerprint == expected
    assert Manifest.load(tmp_path).settings == manifest.settings

"""Token bins of ArmGPT and nanoGPT: opened where they lie, told apart by what is in them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamita.data.folder import DataFolder
from llamita.data.loader import sequential_batches
from llamita.data.prepare import prepare
from llamita.data.rows import IGNORED, StreamRows, make_rows
from llamita.errors import DataError, LlamitaError
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.load import load_tokenizer

LETTERS = "\n abcdehilmnorst."
SPECIAL = ["<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"]
TEXTS = ["the llama sleeps", "a tree and a stone", "rain"]


def _char_json(special: list[str] = SPECIAL) -> dict[str, Any]:
    """A character tokenizer as ArmGPT writes it."""
    tokens = [*LETTERS, "p", "u", *special]
    itos = {str(number): token for number, token in enumerate(tokens)}
    return {"type": "char", "itos": itos, "special_tokens": special}


def _ids(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Texts with the end-of-document token between them."""
    ids: list[int] = []
    for text in texts:
        ids += [*tokenizer.encode(text), tokenizer.separator_id]
    return np.array(ids, dtype="<u2")


@pytest.fixture
def bins(tmp_path: Path) -> Path:
    """ArmGPT's files: train_char.bin, val_char.bin and a tokenizer."""
    folder = tmp_path / "armgpt"
    folder.mkdir()
    (folder / "char_tokenizer.json").write_text(json.dumps(_char_json()))
    tokenizer = load_tokenizer(folder / "char_tokenizer.json")
    _ids(tokenizer, TEXTS * 4).tofile(folder / "train_char.bin")
    _ids(tokenizer, TEXTS[:1]).tofile(folder / "val_char.bin")
    return folder


def test_armgpts_bins_are_opened_where_they_lie(bins: Path) -> None:
    before = sorted(path.name for path in bins.iterdir())
    data = DataFolder.open(bins)
    assert data.manifest.kind == "token bins"
    assert data.manifest.train.documents == 12
    assert data.manifest.train.bytes == 4 * sum(map(len, TEXTS))
    assert data.manifest.val.tokens == len(TEXTS[0]) + 1
    dataset = data.dataset("train")
    assert data.tokenizer.decode(dataset.read(0, 16).tolist()) == TEXTS[0]
    assert dataset.separator_id == data.tokenizer.special_tokens["<|endoftext|>"]
    assert sorted(path.name for path in bins.iterdir()) == before
    assert data.manifest.fingerprint == DataFolder.open(bins).manifest.fingerprint


def test_the_training_file_itself_may_be_named(bins: Path) -> None:
    whole = DataFolder.open(bins)
    named = DataFolder.open(bins / "train_char.bin")
    assert named.manifest.fingerprint == whole.manifest.fingerprint
    assert named.dataset("val").tokens == whole.dataset("val").tokens


def test_another_token_or_another_tokenizer_is_another_fingerprint(bins: Path) -> None:
    before = DataFolder.open(bins).manifest.fingerprint
    ids = np.fromfile(bins / "train_char.bin", dtype="<u2")
    ids[3] += 1
    ids.tofile(bins / "train_char.bin")
    changed = DataFolder.open(bins).manifest.fingerprint
    tokens = [*LETTERS, "p", "y", *SPECIAL]
    other = {**_char_json(), "itos": {str(n): token for n, token in enumerate(tokens)}}
    (bins / "char_tokenizer.json").write_text(json.dumps(other))
    assert len({before, changed, DataFolder.open(bins).manifest.fingerprint}) == 3


@pytest.mark.parametrize("name", ["train_mask_char.bin", "train_char_mask.bin"])
def test_a_mask_says_which_tokens_are_labels(bins: Path, name: str) -> None:
    ids = np.fromfile(bins / "train_char.bin", dtype="<u2")
    mask = np.zeros(len(ids), dtype=np.uint8)
    mask[5:9] = 1
    plain = DataFolder.open(bins).manifest.fingerprint
    mask.tofile(bins / name)
    data = DataFolder.open(bins)
    assert data.manifest.fingerprint != plain
    assert data.manifest.train.learned_tokens == 4
    assert data.manifest.train.learned_bytes == 4
    assert data.manifest.val.learned_tokens is None
    inputs, labels, _ = StreamRows(data.dataset("train"), 12).read(0)
    assert inputs.tolist() == ids[:12].tolist()
    expected = [ids[at] if 5 <= at < 9 else IGNORED for at in range(1, 13)]
    assert labels.tolist() == expected
    [first, *_] = sequential_batches(make_rows(data.dataset("train"), 64, "documents"), 9)
    assert int((first.labels != IGNORED).sum()) == 4


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (b"\x01" * 7, r"train_mask_char\.bin has 7 bytes, but there are \d+ tokens"),
        (b"\x01\x02", r"train_mask_char\.bin holds 2 \(token number 1\)"),
    ],
)
def test_a_mask_that_is_none_is_refused(bins: Path, mask: bytes, message: str) -> None:
    if len(mask) == 2:
        mask = mask.ljust((bins / "train_char.bin").stat().st_size // 2, b"\0")
    (bins / "train_mask_char.bin").write_bytes(mask)
    with pytest.raises(DataError, match=message):
        DataFolder.open(bins)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"train_char\.bin is empty"),
        (b"\1\0\2", r"train_char\.bin has 3 bytes, an odd number"),
        (b"\1\0\2\0\xe8\3", r"train_char\.bin holds the token id 1,000 \(token number 2\)"),
        ((20240520).to_bytes(4, "little") * 256, r"begins with the header of llm\.c"),
    ],
)
def test_files_that_are_no_token_bins_are_named(bins: Path, content: bytes, message: str) -> None:
    (bins / "train_char.bin").write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        DataFolder.open(bins)
    assert error.value.hint


def test_without_a_tokenizer_the_message_says_which_would_do(bins: Path) -> None:
    (bins / "char_tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"no tokenizer beside .*of the kind char") as error:
        DataFolder.open(bins)
    assert "tokenizer.json" in (error.value.hint or "")


def test_several_sets_or_tokenizers_ask_which(bins: Path) -> None:
    (bins / "other.json").write_text(json.dumps(_char_json(SPECIAL[:1])))
    with pytest.raises(DataError, match=r"several tokenizers .*char_tokenizer\.json, other\.json"):
        DataFolder.open(bins)
    (bins / "other.json").unlink()
    (bins / "train_bpe.bin").write_bytes(b"\1\0")
    with pytest.raises(DataError, match=r"several sets .*train_bpe\.bin, train_char\.bin"):
        DataFolder.open(bins)
    assert DataFolder.open(bins / "train_char.bin").manifest.train.documents == 12


def test_a_set_without_its_training_tokens_is_refused(bins: Path) -> None:
    (bins / "train_char.bin").rename(bins / "kept")
    with pytest.raises(DataError, match=r"val_char\.bin has no training split"):
        DataFolder.open(bins)
    (bins / "kept").rename(bins / "train_char.bin")
    (bins / "val_char.bin").unlink()
    assert DataFolder.open(bins).manifest.val.tokens == 0
    (bins / "val_mask_char.bin").write_bytes(b"\1")
    with pytest.raises(DataError, match="no val tokens beside it"):
        DataFolder.open(bins)


def test_a_vocabulary_that_uint16_cannot_hold_is_refused(
    bins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = load_tokenizer(bins / "char_tokenizer.json")
    monkeypatch.setattr(real, "vocab_size", 70_000)
    monkeypatch.setattr("llamita.data.token_bins.find_tokenizer", lambda *arguments: real)
    with pytest.raises(DataError, match=r"70,000 tokens, but token bins are uint16"):
        DataFolder.open(bins)


@pytest.fixture
def nanogpt(tmp_path: Path) -> Path:
    """nanoGPT's Shakespeare: train.bin, val.bin and meta.pkl, no token between documents."""
    folder = tmp_path / "nanogpt"
    folder.mkdir()
    letters = sorted(LETTERS + "pu")
    stoi = {letter: number for number, letter in enumerate(letters)}
    meta = {"vocab_size": len(letters), "itos": dict(enumerate(letters)), "stoi": stoi}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    text = "\n".join(TEXTS * 6)
    for name, part in (("train", text), ("val", text[:80])):
        np.array([stoi[c] for c in part], dtype="<u2").tofile(folder / f"{name}.bin")
    return folder


def test_nanogpts_table_of_characters_is_read(nanogpt: Path) -> None:
    data = DataFolder.open(nanogpt)
    dataset = data.dataset("train")
    assert data.tokenizer.decode(dataset.read(0, 16).tolist()) == TEXTS[0]
    assert dataset.separator_id is None
    assert data.manifest.train.bytes == data.manifest.train.tokens
    with pytest.raises(DataError, match="no token that ends a document") as error:
        make_rows(dataset, 16, "documents")
    assert "batch.packing=stream" in (error.value.hint or "")


class _Harmful:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("harmed"),))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"itos": _Harmful()}, "more than a table of characters"),
        ({"vocab_size": 3}, "has no itos"),
        ([1, 2], "has no itos"),
        ({"itos": {0: "a", 2: "b"}}, "ids 0 to"),
        ({"itos": {0: "a", 1: "bc"}}, "neither one character"),
    ],
)
def test_a_pickle_is_never_run(
    nanogpt: Path, meta: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (nanogpt / "meta.pkl").write_bytes(pickle.dumps(meta))
    with pytest.raises(DataError, match=message) as error:
        DataFolder.open(nanogpt)
    assert not (tmp_path / "harmed").exists()
    assert "tokenizer.json" in (error.value.hint or "")


def test_a_torn_pickle_is_named(nanogpt: Path) -> None:
    content = (nanogpt / "meta.pkl").read_bytes()
    (nanogpt / "meta.pkl").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"meta\.pkl is a damaged pickle"):
        DataFolder.open(nanogpt)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "training_args.bin", "train.bin.bak"])
def test_other_files_are_no_token_bins(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\1\0")
    with pytest.raises(LlamitaError, match=r"no manifest\.json"):
        DataFolder.open(tmp_path)


def test_text_is_prepared_with_the_tokenizer_of_bins(bins: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.mkdir()
    for number in range(9):
        (text / f"{number}.txt").write_text("the llama sleeps in a pit " * (number + 1))
    of_bins = DataFolder.open(bins).tokenizer.fingerprint
    for number, given in enumerate((bins, bins / "train_char.bin")):
        out = tmp_path / f"data{number}"
        prepared = prepare([text], out, tokenizer=str(given), val_fraction=0)
        assert prepared.tokenizer.fingerprint == of_bins
        assert DataFolder.open(out).tokenizer.fingerprint == of_bins
    (bins / "char_tokenizer.json").unlink()
    with pytest.raises(DataError, match="no tokenizer beside"):
        prepare([text], tmp_path / "more", tokenizer=str(bins))

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from llamita.data import encoding
from llamita.data import prepare as prepare_module
from llamita.data.dataset import TokenDataset
from llamita.data.held_out import is_held_out
from llamita.data.manifest import Manifest
from llamita.data.prepare import Reporter, prepare
from llamita.errors import DataError
from llamita.files import sha256_file
from llamita.tokenizer.load import load_tokenizer


class Listener(Reporter):
    def __init__(self) -> None:
        self.phases: dict[str, list[int]] = {}
        self.said: list[str] = []

    def progress(self, phase: str, bytes_done: int, bytes_total: int) -> None:
        assert 0 <= bytes_done <= bytes_total
        self.phases.setdefault(phase, []).append(bytes_done)

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """60 documents in four kinds of files."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:02}.txt").write_bytes(f"Էջ {number}:\r\nցtext “{number}”\n".encode())
    for name, opened in (("a.jsonl", open), ("b.jsonl.gz", gzip.open)):
        with opened(folder / name, "wt", encoding="utf-8") as file:  # type: ignore[operator]
            for number in range(20):
                file.write(json.dumps({"text": f"{name} line {number}\n"}) + "\n")
    return folder


def documents_in(data: Path, split: Any) -> list[str]:
    """The texts of a split, taken apart at the separators."""
    dataset, tokenizer = TokenDataset.open(data, split), load_tokenizer(data)
    tokens = dataset.read(0, dataset.tokens).tolist()
    assert tokens[0] == tokens[-1] == dataset.separator_id
    texts: list[list[int]] = [[]]
    for token in tokens[1:]:
        if token == dataset.separator_id:
            texts.append([])
        else:
            texts[-1].append(token)
    return [tokenizer.decode(ids) for ids in texts[:-1]]


@pytest.mark.parametrize("tokenizer", ["bpe:280", "char"])
def test_every_document_is_in_the_shards_of_the_side_its_hash_says(
    corpus: Path, tmp_path: Path, tokenizer: str
) -> None:
    prepare([corpus], tmp_path / "DATA", tokenizer=tokenizer, val_fraction=0.3)
    train, val = (documents_in(tmp_path / "DATA", split) for split in ("train", "val"))
    expected = [f"Էջ {number}:\nցtext “{number}”\n" for number in range(20)]
    expected += [f"{name} line {n}\n" for name in ("a.jsonl", "b.jsonl.gz") for n in range(20)]
    assert train == [text for text in expected if not is_held_out(text, 0.3)]
    assert val == [text for text in expected if is_held_out(text, 0.3)]


def test_the_manifest_counts_what_is_there(corpus: Path, tmp_path: Path) -> None:
    (corpus / "empty.txt").touch()
    (corpus / "blank.txt").write_text(" \n")
    (corpus / "image.png").touch()
    (corpus / "z.jsonl").write_text('{"text": "lone \\ud800 surrogate"}')
    data = tmp_path / "DATA"
    manifest = prepare([corpus], data, tokenizer="bpe:280", val_fraction=0.3)
    assert manifest == Manifest.load(data)
    train, val = (documents_in(data, split) for split in ("train", "val"))
    for counts, texts in ((manifest.train, train), (manifest.val, val)):
        assert counts.documents == len(texts)
        assert counts.bytes == sum(len(text.encode()) for text in texts)
    assert len(train) + len(val) == 61
    tokens = manifest.train.tokens + manifest.val.tokens - len(train) - len(val) - 2
    text_bytes = manifest.train.bytes + manifest.val.bytes
    assert manifest.bytes_per_token == pytest.approx(text_bytes / tokens)
    assert (manifest.empty_files, manifest.skipped_files) == (1, {".png": 1})
    assert manifest.replaced_surrogates == 1
    assert manifest.stages[-1].documents_in - manifest.stages[-1].documents_out == 1
    assert manifest.tokenizer.fingerprint == load_tokenizer(data).fingerprint
    for source in manifest.sources:
        assert source.sha256 == sha256_file(Path(source.path))
        assert source.bytes == Path(source.path).stat().st_size
    for shard in manifest.shards:
        assert shard.sha256 == sha256_file(data / shard.file)


def test_held_out_texts_lie_beside_the_shards(corpus: Path, tmp_path: Path) -> None:
    data = tmp_path / "DATA"
    manifest = prepare([corpus], data, tokenizer="char", val_fraction=0.2)
    lines = (data / "validation.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    entries = [json.loads(line) for line in lines]
    assert [entry["text"] for entry in entries] == documents_in(data, "val")
    assert [entry["source"] for entry in entries] == manifest.held_out


def test_many_held_out_documents_are_not_named(corpus: Path, tmp_path: Path) -> None:
    manifest = prepare([corpus], tmp_path / "DATA", tokenizer="char", val_fraction=0.7)
    assert manifest.val.documents > 20
    assert manifest.held_out == []


def test_the_same_text_and_settings_give_the_same_files(corpus: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for data in (first, second):
        prepare([corpus], data, tokenizer="bpe:280")
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert "val-00000.bin" in names
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_batches_and_shard_size_do_not_change_the_tokens(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare([corpus], tmp_path / "one", tokenizer="bpe:280")
    monkeypatch.setattr(encoding, "BATCH_BYTES", 50)
    manifest = prepare([corpus], tmp_path / "many", tokenizer="bpe:280", shard_tokens=100)
    assert len(manifest.shards) > 3
    assert documents_in(tmp_path / "many", "train") == documents_in(tmp_path / "one", "train")


def test_the_tokenizer_never_sees_held_out_text(tmp_path: Path) -> None:
    """Each document has a character of its own, which a character tokenizer learns or not."""
    corpus = tmp_path / "corpus.jsonl"
    letters = [chr(0x4E00 + number) for number in range(60)]
    corpus.write_text("\n".join(json.dumps({"text": letter}) for letter in letters))
    prepare([corpus], tmp_path / "DATA", tokenizer="char", val_fraction=0.3)
    tokenizer = load_tokenizer(tmp_path / "DATA")
    for letter in letters:
        assert (len(tokenizer.encode(letter)) > 1) == is_held_out(letter, 0.3)


def test_a_finished_tokenizer_is_taken_as_it_is(corpus: Path, tmp_path: Path) -> None:
    first = prepare([corpus], tmp_path / "first", tokenizer="bpe:280")
    listener = Listener()
    second = prepare(
        [corpus], tmp_path / "second", tokenizer=str(tmp_path / "first"), reporter=listener
    )
    assert second.tokenizer == first.tokenizer
    assert second.fingerprint == first.fingerprint
    assert "reading" not in listener.phases


def test_a_tokenizer_path_that_is_not_there_names_the_kinds(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.json") as error:
        prepare([corpus], tmp_path / "DATA", tokenizer="gone.json")
    assert "bpe:8192" in (error.value.hint or "")


def test_again_with_the_same_text_leaves_the_data_alone(corpus: Path, tmp_path: Path) -> None:
    data = tmp_path / "DATA"
    first = prepare([corpus], data, tokenizer="char")
    before = (data / "manifest.json").stat()
    listener = Listener()
    assert prepare([corpus], data, tokenizer="char", reporter=listener) == first
    assert (data / "manifest.json").stat().st_ino == before.st_ino
    assert any("already prepared" in line for line in listener.said)


@pytest.mark.parametrize("change", ["text", "settings", "damage"])
def test_other_data_is_replaced_only_by_force(corpus: Path, tmp_path: Path, change: str) -> None:
    data = tmp_path / "DATA"
    prepare([corpus], data, tokenizer="char")
    options: dict[str, Any] = {"tokenizer": "char"}
    if change == "text":
        (corpus / "00.txt").write_text("other text")
    elif change == "settings":
        options["val_fraction"] = 0.2
    else:
        (data / "train-00000.bin").write_bytes(b"")
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    with pytest.raises(DataError, match="holds prepared data") as error:
        prepare([corpus], data, **options)
    assert "--force" in (error.value.hint or "")
    assert {path.name: path.read_bytes() for path in data.iterdir()} == before
    prepare([corpus], data, force=True, **options)
    assert documents_in(data, "train")


def test_a_folder_that_is_no_data_is_never_replaced(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not prepared data"):
        prepare([tmp_path / "corpus"], corpus, tokenizer="char", force=True)
    assert (corpus / "00.txt").exists()


def test_data_made_inside_the_source_folder_is_not_read_as_text(corpus: Path) -> None:
    first = prepare([corpus], corpus / "DATA", tokenizer="char")
    assert prepare([corpus], corpus / "DATA", tokenizer="char") == first


def test_an_error_on_the_way_leaves_nothing_behind(corpus: Path, tmp_path: Path) -> None:
    (corpus / "zz.txt").write_bytes(b"not \xff utf-8")
    with pytest.raises(DataError, match=r"zz\.txt"):
        prepare([corpus], tmp_path / "DATA", tokenizer="char")
    assert list(tmp_path.iterdir()) == [corpus]


def test_an_error_in_the_second_pass_leaves_nothing_behind(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Manifest, "save", fail)
    with pytest.raises(KeyboardInterrupt):
        prepare([corpus], tmp_path / "DATA", tokenizer="char")
    assert list(tmp_path.iterdir()) == [corpus]


def test_text_that_changes_while_it_is_read_is_an_error(corpus: Path, tmp_path: Path) -> None:
    class Writer(Reporter):
        def progress(self, phase: str, bytes_done: int, bytes_total: int) -> None:
            if phase == "tokenizing":
                with (corpus / "00.txt").open("a") as file:
                    file.write("more")

    with pytest.raises(DataError, match=r"00\.txt was changed while it was read"):
        prepare([corpus], tmp_path / "DATA", tokenizer="char", reporter=Writer())
    assert list(tmp_path.iterdir()) == [corpus]


@pytest.mark.parametrize("place", ["file/DATA", "file/more/DATA"])
def test_a_place_that_cannot_be_written_is_named_before_any_work(
    corpus: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    listener = Listener()
    with pytest.raises(DataError, match=rf"cannot write .*/{place}: Not a directory\."):
        prepare([corpus], tmp_path / place, tokenizer="char", reporter=listener)
    assert "reading" not in listener.phases


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_file_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(30):
        (folder / os.fsdecode(b"caf\xe9%d.txt" % number)).write_text(f"text {number}")
    (folder / os.fsdecode(b"a.\xe9")).touch()
    manifest = prepare([folder], tmp_path / "DATA", tokenizer="char", val_fraction=0.3)
    assert manifest.sources[0].path == f"{folder}/caf\\udce90.txt"
    assert manifest.skipped_files == {".\\udce9": 1}
    assert manifest.held_out
    assert prepare([folder], tmp_path / "DATA", tokenizer="char", val_fraction=0.3) == manifest


def test_one_document_alone_cannot_be_split(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("only one\n\n" * 100)
    with pytest.raises(DataError, match="the only document"):
        prepare([tmp_path / "a.txt"], tmp_path / "DATA", tokenizer="char")
    manifest = prepare([tmp_path / "a.txt"], tmp_path / "all", tokenizer="char", val_fraction=0)
    assert (manifest.train.documents, manifest.val.tokens) == (1, 0)
    assert not (tmp_path / "all" / "validation.jsonl").exists()


def test_one_long_document_can_be_cut_and_split(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"paragraph {n}\n\n" for n in range(200)))
    manifest = prepare(
        [tmp_path / "a.txt"], tmp_path / "DATA", tokenizer="char", max_document_chars=50
    )
    assert manifest.cut_documents == 1
    assert manifest.train.documents > manifest.val.documents > 0


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_fraction_out_of_range_is_refused(tmp_path: Path, fraction: float) -> None:
    with pytest.raises(DataError, match="--val-fraction is"):
        prepare([tmp_path], tmp_path / "DATA", val_fraction=fraction)


def test_progress_goes_through_all_bytes_of_each_phase(corpus: Path, tmp_path: Path) -> None:
    listener = Listener()
    prepare([corpus], tmp_path / "DATA", tokenizer="char", reporter=listener)
    total = sum(path.stat().st_size for path in corpus.iterdir())
    for phase in ("hashing", "reading", "tokenizing"):
        assert listener.phases[phase] == sorted(listener.phases[phase])
        assert listener.phases[phase][-1] == total


def test_memory_stays_far_below_the_size_of_the_text(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare([corpus], tmp_path / "first", tokenizer="char")
    quick = load_tokenizer(tmp_path / "first")
    monkeypatch.setattr(quick, "encode_batch", lambda texts: [[1] * len(text) for text in texts])
    monkeypatch.setattr(prepare_module, "tokenizer_of", lambda _: quick)
    monkeypatch.setattr(encoding, "BATCH_BYTES", 100_000)
    long = tmp_path / "long.txt"
    with long.open("w") as file:
        for number in range(250):
            file.write(f"chapter {number}\n" + "a line of a long text\n" * 4_800 + "\n")
    size = long.stat().st_size
    assert size > 25_000_000
    tracemalloc.start()
    manifest = prepare(
        [long], tmp_path / "DATA", tokenizer=str(tmp_path / "first"), max_document_chars=100_000
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert manifest.train.bytes + manifest.val.bytes == size
    assert peak < size / 5


def test_preparing_does_not_import_torch() -> None:
    code = "import sys, llamita.data.prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

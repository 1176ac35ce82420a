"""`llamita tokenizer train`, `inspect` and `compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamita.cli.main import run
from llamita.tokenizer import load_tokenizer


@pytest.fixture
def text_file(corpus: list[str], tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(corpus).replace("\0", ""), encoding="utf-8", newline="")
    return path


def train(text_file: Path, out: Path, spec: str) -> int:
    return run(["tokenizer", "train", str(text_file), "-o", str(out), "--tokenizer", spec])


def test_train_writes_a_tokenizer_and_says_what_it_is(
    text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(text_file, tmp_path / "out", "spm:600") == 0
    assert load_tokenizer(tmp_path / "out").vocab_size == 600
    output = capsys.readouterr()
    assert "spm, 600 tokens" in output.out
    assert "learns from all" in output.err


def test_train_does_not_replace_a_tokenizer(
    text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(text_file, tmp_path / "out", "char") == 0
    assert train(text_file, tmp_path / "out", "bpe:300") == 2
    assert "already holds a tokenizer" in capsys.readouterr().err
    assert load_tokenizer(tmp_path / "out").kind == "char"


def test_train_that_fails_leaves_nothing(text_file: Path, tmp_path: Path) -> None:
    assert train(text_file, tmp_path / "out", "bpe:90000") == 2
    assert train(tmp_path / "missing.txt", tmp_path / "out", "bpe:300") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_inspect_shows_the_pieces_of_a_text(
    text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(text_file, tmp_path / "out", "char")
    capsys.readouterr()
    assert run(["tokenizer", "inspect", str(tmp_path / "out"), "a\n𝒳", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["kind"], report["lossy"], report["add_bos"]) == ("char", None, True)
    texts = [token["text"] for token in report["tokens"]]
    assert texts == ["'a'", r"'\n'", r"'\xf0'", r"'\x9d'", r"'\x92'", r"'\xb3'"]
    assert run(["tokenizer", "inspect", str(tmp_path / "out"), "a\n𝒳"]) == 0
    assert "the text in 6 tokens" in capsys.readouterr().out


def test_compare_counts_tokens_and_bytes_per_token(
    text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, spec in (("a", "bpe:500"), ("b", "char")):
        train(text_file, tmp_path / name, spec)
    capsys.readouterr()
    arguments = [str(tmp_path / "a"), str(tmp_path / "b"), str(text_file)]
    assert run(["tokenizer", "compare", *arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    first, second = report["tokenizers"]
    assert first["tokens"] < second["tokens"]
    assert first["bytes_per_token"] == report["bytes"] / first["tokens"]
    assert first["lossless"]
    assert run(["tokenizer", "compare", *arguments]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_compare_needs_a_tokenizer(text_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokenizer", "compare", str(text_file)]) == 2
    assert "nothing to compare" in capsys.readouterr().err

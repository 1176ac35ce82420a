"""`llamita data tool-tasks`: the file, what is told, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamita.cli.main import run
from llamita.tokenizer.train import train_tokenizer


def test_it_writes_a_file_and_tells_what_is_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tasks.jsonl"
    assert run(["data", "tool-tasks", "-o", str(path), "--count", "12", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert told["conversations"] == len(lines) == 12
    assert sum(told["tasks"].values()) == sum(len(line["kinds"]) for line in lines)
    assert run(["data", "tool-tasks", "-o", str(path), "--count", "5", "--split", "test"]) == 0
    assert "5 conversations" in capsys.readouterr().out


def test_splits_and_seeds_give_other_files(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.jsonl" for i in range(4)]
    options = [
        ["--seed", "1"],
        ["--seed", "2"],
        ["--seed", "1", "--split", "test"],
        ["--seed", "1"],
    ]
    for file, extra in zip(files, options, strict=True):
        assert run(["data", "tool-tasks", "-o", str(file), "--count", "4", *extra]) == 0
    contents = [file.read_bytes() for file in files]
    assert contents[0] == contents[3]
    assert len(set(contents)) == 3


@pytest.mark.parametrize("extra", [["--count", "0"], ["--split", "validation"], []])
def test_wrong_use_is_told_and_nothing_is_written(
    extra: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "tasks.jsonl")] if extra else []
    assert run(["data", "tool-tasks", *out, *extra]) == 2
    assert capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_exercises_take_the_words_of_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = train_tokenizer(["the near sun shines on the near sea " * 20], "bpe:270")
    trained.save(tmp_path / "tokenizer")
    plain, own = tmp_path / "plain.jsonl", tmp_path / "own.jsonl"
    for path, extra in ((plain, []), (own, ["--words-of", str(tmp_path / "tokenizer")])):
        assert run(["data", "tool-tasks", "-o", str(path), "--count", "30", *extra]) == 0
    assert plain.read_bytes() != own.read_bytes()
    missing = ["data", "tool-tasks", "-o", str(own), "--words-of", str(tmp_path / "nowhere")]
    assert run(missing) == 2
    assert "nowhere" in capsys.readouterr().err

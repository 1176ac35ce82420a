from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamita.cli.main import run


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    lines = (json.dumps({"text": f"document {number}", "body": "x"}) for number in range(50))
    path.write_text("\n".join(lines))
    return path


def test_it_makes_data_and_says_what_is_in_it(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "DATA"
    assert run(["prepare", str(corpus), "-o", str(data), "--tokenizer", "char"]) == 0
    shown = capsys.readouterr().out
    manifest = json.loads((data / "manifest.json").read_text())
    for expected in (
        f"{manifest['train']['documents']} documents",
        f"{manifest['val']['tokens']:,} tokens",
        "bytes per token",
        manifest["held_out"][0].rpartition("/")[2],
        f"llamita train {data}",
    ):
        assert expected in shown


def test_json_is_the_manifest_and_nothing_else(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "DATA"
    arguments = ["prepare", str(corpus), "-o", str(data), "--tokenizer", "char", "--json"]
    for _ in range(2):  # made, then found already made
        assert run(arguments) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown == json.loads((data / "manifest.json").read_text())


def test_options_reach_the_work(corpus: Path, tmp_path: Path) -> None:
    options = "--tokenizer char --val-fraction 0 --field body --encoding ascii --seed 3"
    options += " --max-document-chars 99 --chat-format chatml-signatures"
    assert run(["prepare", str(corpus), "-o", str(tmp_path / "DATA"), *options.split()]) == 0
    assert json.loads((tmp_path / "DATA/manifest.json").read_text())["settings"] == {
        "tokenizer": "char",
        "val_fraction": 0.0,
        "field": "body",
        "encoding": "ascii",
        "max_document_chars": 99,
        "seed": 3,
        "loss": "all",
        "val_sources": 0,
        "longest": None,
        "long": None,
        "chat_template": None,
        "chat_format": "chatml-signatures",
        "tokenizer_also": None,
    }


def test_force_replaces_other_data(corpus: Path, tmp_path: Path) -> None:
    arguments = ["prepare", str(corpus), "-o", str(tmp_path / "DATA"), "--tokenizer", "char"]
    assert run(arguments) == 0
    arguments += ["--val-fraction", "0.5"]
    assert run(arguments) == 2
    assert run([*arguments, "--force"]) == 0


def test_a_mistake_is_two_lines_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["prepare", str(tmp_path / "gone.txt"), "-o", str(tmp_path / "DATA")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("llamita: there is no file or folder")
    assert len(captured.err.splitlines()) <= 2

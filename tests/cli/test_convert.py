"""`llamita convert`: exit codes, what stands on stdout, and what is left on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamita.cli.main import run
from llamita.formats import huggingface
from llamita.shipping import runtimes
from tests.shipping.conftest import bpe_tokenizer, hf

__all__ = ["bpe_tokenizer", "hf"]


@pytest.fixture(autouse=True)
def _no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        runtimes, "runtime_of", lambda target: (*runtimes.RUNTIMES[target][:1], False)
    )


def test_a_conversion_prints_a_table(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", str(hf), str(tmp_path / "m.gguf")]) == 0
    out, err = capsys.readouterr()
    assert "largest logit gap  0 of" in out
    assert "status             self-check" in out
    assert "comparing every tensor" in err


def test_json_is_the_report_and_nothing_else(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox")
    arguments = ["--quant", "q8_0", "--text", str(tmp_path / "text.txt"), "--json"]
    assert run(["convert", str(hf), str(tmp_path / "m.gguf"), *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "verify.json").read_text())
    assert report["quantization"] == "q8_0"
    assert {"same", "max_logit_gap", "greedy_equal", "token_ids_equal"} <= report.keys()
    assert {"before", "after"} <= report["bits_per_byte"].keys()
    assert report["bits_per_byte"]["text"]["bytes"] == 19


def test_a_failed_check_exits_1_and_marks_the_result(
    hf: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = huggingface.config_to_json
    monkeypatch.setattr(
        huggingface,
        "config_to_json",
        lambda config, **settings: {**right(config, **settings), "rms_norm_eps": 1e-5},
    )
    assert run(["convert", str(hf), str(tmp_path / "out"), "--to", "hf"]) == 1
    out, err = capsys.readouterr()
    assert "status             failed" in out
    assert "differs: rms_norm_eps is 1e-06 in A and 1e-05 in B." in out
    assert "is not the same model as" in err
    assert (tmp_path / "out" / "UNVERIFIED").exists()


def test_no_verify_writes_and_says_so(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", str(hf), str(tmp_path / "out"), "--to", "hf", "--no-verify"]) == 0
    assert "status   unverified" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [("--to", "onnx"), (), ("--to", "hf", "--quant", "q4_0"), ("--to", "hf", "--text", "none.txt")],
)
def test_wrong_use_exits_2_and_writes_nothing(
    hf: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    assert run(["convert", str(hf), str(tmp_path / "out"), *arguments]) == 2
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_exits_130_and_leaves_nothing(
    hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(huggingface, "write_json", stop)
    assert run(["convert", str(hf), str(tmp_path / "out"), "--to", "hf"]) == 130
    assert list(tmp_path.iterdir()) == []


def test_overwrite_is_asked_for(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["convert", str(hf), str(tmp_path / "out"), "--to", "hf"]
    assert run(command) == 0
    assert run(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run([*command, "--overwrite"]) == 0

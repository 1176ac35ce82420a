"""The dispatcher: one clear message for each mistake, the right exit code, no traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import llamita
from llamita.cli.main import COMMANDS, main, run
from llamita.errors import CheckFailed, LlamitaError


def _install(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> None:
    """Make `llamita verify` a command that raises `error`."""

    def command() -> None:
        """Nothing but an error."""
        if error is not None:
            raise error

    module = ModuleType("fake")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "llamita.cli.verify", module)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in COMMANDS)
    assert run([]) == 0


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"llamita {llamita.__version__}"


def test_an_unknown_command_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["genrate"]) == 2
    assert "'generate'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (LlamitaError("the value is 5.", hint="Use 4."), 2, ["the value is 5.", "Use 4."]),
        (CheckFailed("they differ."), 1, ["they differ."]),
        (KeyboardInterrupt(), 130, ["stopped."]),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), 2, ["No space left", "/x"]),
        (None, 0, []),
    ],
)
def test_each_kind_of_end_has_its_code_and_at_most_two_lines(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | None,
    code: int,
    words: list[str],
) -> None:
    _install(monkeypatch, error)
    assert run(["verify"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) <= 2
    assert all(word in printed.err for word in words)


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, LlamitaError("the value is 5."))
    assert run(["verify", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_fault_of_llamita_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        run(["verify"])


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself_and_refuses_unknown_flags(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0
    assert f"llamita {name}" in capsys.readouterr().out
    assert run([name, "--no-such-flag"]) == 2
    printed = capsys.readouterr()
    assert "--no-such-flag" in printed.err
    assert printed.out == ""


def test_main_exits_with_the_code(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["inspect", str(tmp_path / "nowhere")])
    assert stop.value.code == 2


def _shell(command: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable},
    )


@pytest.mark.parametrize("arguments", ["--help", "prepare --help", "tokenizer --help"])
def test_a_reader_that_leaves_is_no_fault(arguments: str, tmp_path: Path) -> None:
    done = _shell(f'"$PYTHON" -m llamita {arguments} | true', tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_debug_behind_two_dashes_belongs_to_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["inspect", "--", "--debug"]) == 2
    assert "--debug" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--top-k", "abc"], ["--top-k is 'abc'", "It should be a valid integer"]),
        (["--temperature=x"], ["--temperature is 'x'", "It should be a valid number"]),
        (["--ban", "foo", "--ban", "3"], ["--ban is 'foo'", "It should be a valid integer"]),
        (["--tempratur", "1"], ["no such option: --tempratur", "llamita generate --help"]),
        (["again", "and again"], ["unexpected extra argument", "in quotes"]),
        (["--seed"], ["'--seed' requires an argument"]),
    ],
)
def test_what_cannot_be_parsed_takes_two_lines(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "model", "once", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 2
    assert all(word in printed.err for word in words), printed.err


def test_a_command_with_verbs_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokenizer"]) == 2
    assert "inspect" in capsys.readouterr().err
    assert run(["tokenizer", "train"]) == 2
    assert "llamita tokenizer train --help" in capsys.readouterr().err


@pytest.mark.parametrize(("rank", "lines"), [("0", 2), ("1", 0)])
def test_a_command_for_one_process_refuses_torchrun_and_tells_it_once(
    rank: str, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": rank, "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    assert run(["prepare", "text"]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == lines
    assert ("llamita prepare is for one" in err) == (rank == "0")


def test_a_world_without_a_place_to_meet_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(["train", "data", "-o", "run"]) == 2
    assert "(WORLD_SIZE), but RANK is not set" in capsys.readouterr().err


def test_a_closed_stdout_is_told(tmp_path: Path) -> None:
    done = _shell('"$PYTHON" -m llamita inspect nothing >&-', tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("llamita: stdout is closed")
    assert len(done.stderr.splitlines()) == 1

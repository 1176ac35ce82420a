"""Writing that is whole or not there."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llamita.errors import CheckpointError, DataError
from llamita.files import (
    atomic_write_bytes,
    atomic_write_text,
    read_json,
    remove_leftovers,
    replace_directory,
    replace_files,
    sha256_file,
    write_json,
    writing,
)

DEAD_PROCESS = 99_999_999  # above what any system gives


def _no_space(*args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_written_file_holds_its_content_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    atomic_write_text(tmp_path / "new" / "a.txt", "Բարև")
    assert (tmp_path / "new" / "a.txt").read_text(encoding="utf-8") == "Բարև"
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    atomic_write_bytes(path, b"old")
    monkeypatch.setattr(os, "fsync", _no_space)
    with pytest.raises(OSError, match="No space"):
        atomic_write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_directory_replaces_another_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(writing, "_exchange", lambda a, b: False)
    final = tmp_path / "d"
    for content in ("one", "two"):
        with replace_directory(final) as folder:
            (folder / content).write_text(content)
            (folder / "sub").mkdir()
    assert sorted(path.name for path in final.iterdir()) == ["sub", "two"]
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_a_failure_inside_leaves_the_old_directory(tmp_path: Path) -> None:
    final = tmp_path / "d"
    with replace_directory(final) as folder:
        (folder / "old").write_text("x")

    def fail_half_way() -> None:
        with replace_directory(final) as folder:
            (folder / "new").write_text("y")
            _no_space()

    with pytest.raises(OSError, match="No space"):
        fail_half_way()
    assert [path.name for path in final.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_broken_json_is_named_with_the_wanted_error(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(DataError, match=r"x\.json"):
        read_json(path)
    path.write_text('{"a": ')
    with pytest.raises(CheckpointError, match=r"x\.json"):
        read_json(path, CheckpointError)
    path.write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"x\.json"):
        read_json(path)


def test_json_and_hashes_round_trip(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"name": "լամա"})
    assert read_json(tmp_path / "x.json") == {"name": "լամա"}
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_file(tmp_path / "abc").startswith("ba7816bf8f01cfea")


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from llamita.files import replace_directory
with replace_directory(Path(sys.argv[1]) / "model") as folder:
    (folder / "half").write_text("x")
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (tmp_path / "kept.tmp").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    living = f".model.{os.getppid()}.abcdefgh.tmp"
    (tmp_path / living).mkdir()
    assert len(list(tmp_path.iterdir())) == 4
    remove_leftovers(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([".hidden", living, "kept.tmp"])


def test_replacing_removes_what_a_killed_process_left_of_the_same_target(tmp_path: Path) -> None:
    for name in ("model", "other", "model.old"):
        (tmp_path / f".{name}.{DEAD_PROCESS}.abcdefgh.tmp").mkdir()
    (tmp_path / f".model.{os.getppid()}.abcdefgh.tmp").mkdir()
    with replace_directory(tmp_path / "model"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            f".model.{os.getppid()}.abcdefgh.tmp",
            f".model.old.{DEAD_PROCESS}.abcdefgh.tmp",
            f".other.{DEAD_PROCESS}.abcdefgh.tmp",
            "model",
        ]
    )


def test_what_a_killed_process_of_the_same_number_left_is_removed(tmp_path: Path) -> None:
    """In a container the same command has the same process id every time."""
    left = tmp_path / f".model.{os.getpid()}.abcdefgh.tmp"
    left.mkdir()
    with replace_directory(tmp_path / "other") as living:
        remove_leftovers(tmp_path)
        assert living.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize("has_new", [True, False])
def test_a_directory_that_was_moved_aside_goes_back_unless_the_new_one_came(
    tmp_path: Path, has_new: bool
) -> None:
    """Killed between the two renames, where directories cannot be exchanged in one step."""
    aside = tmp_path / f".model.{DEAD_PROCESS}.abcdefgh.old"
    aside.mkdir()
    (aside / "old").touch()
    if has_new:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "new").touch()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "new" if has_new else "old"]


def test_there_is_no_moment_without_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "d"
    with replace_directory(final) as folder:
        (folder / "one").touch()
    if not writing._exchange(final, final.with_name("d")):
        pytest.skip("this system cannot exchange directories")
    seen = []
    real = Path.replace

    def replace(path: Path, target: Path) -> Path:
        seen.append((path, target))
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    with replace_directory(final) as folder:
        (folder / "two").touch()
    assert not seen
    assert [path.name for path in final.iterdir()] == ["two"]


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", _no_space)
    with pytest.raises(OSError, match="No space") as error:
        atomic_write_bytes(tmp_path / "a", b"new")
    assert error.value.filename == str(tmp_path / "a")


def test_a_place_that_cannot_be_written_is_named_as_given(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    final = tmp_path / "file" / "model"
    with pytest.raises(NotADirectoryError) as error, replace_directory(final):
        pass
    assert error.value.filename == str(final)


def test_files_move_together_and_the_one_that_tells_moves_last(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("stays")
    with replace_files(tmp_path / "model.bin", last="a.json") as temporary:
        for name in ("a.json", "model.bin", "zz"):
            (temporary / name).write_text(name)
        assert [path.name for path in tmp_path.iterdir() if path.suffix != ".tmp"] == ["other"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.json",
        "model.bin",
        "other",
        "zz",
    ]


def test_files_of_a_block_that_raises_do_not_move(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_text("old")

    def write() -> None:
        with replace_files(tmp_path / "model.bin") as temporary:
            (temporary / "model.bin").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["model.bin"]
    assert (tmp_path / "model.bin").read_text() == "old"


def test_json_that_asks_for_more_memory_than_it_weighs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content, said in (
        ("[" + "[],[]," * 2_100_000 + "1]", "more than"),
        ("[" * 120 + "]" * 120, "nested more than 100"),
        ('{"a": 1' + "0" * 3000 + "}", "3001 digits"),
        (" " * 16_000_001 + "1", "16,000,002 bytes"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=said):
            read_json(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_or_a_device_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError, match="a device or a pipe"):
            read_json(path)
    with pytest.raises(DataError, match="a directory"):
        read_json(tmp_path)


def test_messages_hold_no_control_codes_and_end(tmp_path: Path) -> None:
    error = DataError("a\x1b[2J\nb" + "c" * 10_000_000)
    assert error.message.startswith("a\\x1b[2J\\nbc")
    assert len(error.message) < 2100

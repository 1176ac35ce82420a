"""Writing that never leaves half a file.

What is written goes to a temporary name beside the target, is flushed to the disk, and is renamed
at the end. A killed process or a full disk leaves the old file or none. The temporary names hold
the process id, so that what a killed process left is told from what a living one is writing.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llamita.errors import LlamitaError

_ASIDE = ".old"
# What this process is writing: in a container a killed one often had the same process id.
_being_written: set[str] = set()
_TEMPORARY = re.compile(r"\.(.+)\.([0-9]+)\.[a-z0-9_]{8}\.(?:tmp|old)", re.DOTALL)


def fsync_path(path: Path) -> None:
    """Flush a file or a directory entry to the disk (directories: where the system allows it)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def atomic_write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(
        prefix=temporary_prefix(path.name), suffix=".tmp", dir=path.parent
    )
    temporary = Path(name)
    _being_written.add(temporary.name)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        give_usual_mode(temporary)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # a full disk's comes without a name
            error.filename = str(path)
        raise
    finally:
        _being_written.discard(temporary.name)


def atomic_write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all."""
    atomic_write_bytes(path, text.encode("utf-8"))


def check_own(path: Path, mark: str, error: type[LlamitaError]) -> None:
    """Refuse, with an `error`, a path where something lies that does not hold `mark` early on."""
    if not path.exists():
        return
    if path.is_file():
        with path.open("rb") as file:
            if mark.encode() in file.read(2000):
                return
    raise error(f"{path} is there and is no report; it stays as it is.", hint="Name another file.")


def write_own(path: Path, text: str, mark: str, error: type[LlamitaError]) -> None:
    """Write `text`, which holds `mark` early on, where nothing lies or an earlier one like it."""
    check_own(path, mark, error)
    atomic_write_text(path, text)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON to `path`, whole or not at all."""
    atomic_write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def replace_directory(final: Path) -> Iterator[Path]:
    """Yield a temporary sibling directory that becomes `final` when the block ends well.

    Where the system can exchange two directories (Linux, macOS), there is at no moment no `final`;
    elsewhere an existing one is moved aside first, and back by the next call or by
    `remove_leftovers` if the process is killed before the new one has its place. When the block
    raises, the temporary directory is removed and `final` stays as it was. What killed processes
    left of `final` is removed first.

    Raises:
        OSError: nothing can be written there; its `filename` is `final`.
    """
    temporary = _begin(final)
    try:
        yield temporary
        for path in temporary.rglob("*"):
            fsync_path(path)
        fsync_path(temporary)
        if not final.exists():
            temporary.replace(final)
        elif not _exchange(temporary, final):
            # Killed between the two, this is all there is of `final`.
            old = temporary.with_suffix(_ASIDE)
            final.replace(old)
            temporary.replace(final)
            shutil.rmtree(old, ignore_errors=True)
        fsync_path(final.parent)
    finally:
        # What is left under this name is the old directory, or one that was not finished.
        shutil.rmtree(temporary, ignore_errors=True)
        _being_written.discard(temporary.name)


@contextlib.contextmanager
def replace_files(final: Path, last: str | None = None) -> Iterator[Path]:
    """Yield a temporary directory whose files move beside `final` when the block ends well.

    What goes with the file `final.name` moves before it, what tells that all is there (`last`)
    after it. When the block raises, nothing has moved. What killed processes left is removed first.
    Each file is whole at any time, but whoever is killed while they move leaves some of each set:
    let the block end with taking back what an old `last` says.

    Raises:
        OSError: nothing can be written there; its `filename` is `final`.
    """
    temporary = _begin(final)
    try:
        yield temporary
        order = [final.name, last]
        names = [path.name for path in temporary.iterdir()]
        names.sort(key=lambda name: order.index(name) if name in order else -1)
        for name in names:
            fsync_path(temporary / name)
        for name in names:
            (temporary / name).replace(final.parent / name)
        fsync_path(final.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _being_written.discard(temporary.name)


def temporary_prefix(name: str) -> str:
    """How temporary names for `name` begin; eight random characters and `.tmp` follow."""
    return f".{name}.{os.getpid()}."


def remove_leftovers(directory: Path, name: str | None = None) -> None:
    """Remove what killed processes left in `directory`, of all names or of the target `name`.

    What a living process of this machine is writing stays. A directory that was moved aside for a
    new one that never came goes back to its place.
    """
    for path in [*directory.glob(".*.tmp"), *directory.glob(f".*{_ASIDE}")]:
        match = _TEMPORARY.fullmatch(path.name)
        if match is None or name not in (None, match[1]) or _is_living(path, int(match[2])):
            continue
        if path.suffix == _ASIDE and not (directory / match[1]).exists():
            path.replace(directory / match[1])
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two directories in one step; False where that is not possible."""
    names = os.fsencode(a), os.fsencode(b)
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "renameat2"):
        here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        return bool(ctypes.CDLL(None).renameat2(here, names[0], here, names[1], exchange) == 0)
    if sys.platform == "darwin" and hasattr(ctypes.CDLL(None), "renamex_np"):
        swap = 2  # RENAME_SWAP
        return bool(ctypes.CDLL(None).renamex_np(*names, swap) == 0)
    return False


def give_usual_mode(path: Path) -> None:
    """Give a file the mode of one that was opened for writing: what the umask leaves."""
    path.chmod(0o666 & ~_umask())


def _begin(final: Path) -> Path:
    """A new temporary directory beside `final`, with the usual mode."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(final.parent, final.name)
        temporary = _temporary_directory(final)
    except FileExistsError as error:  # the parent is a file
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(final)) from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(final)) from error
    temporary.chmod(0o777 & ~_umask())
    return temporary


def _temporary_directory(final: Path) -> Path:
    prefix = temporary_prefix(final.name)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, suffix=".tmp", dir=final.parent))
    _being_written.add(temporary.name)
    return temporary


def _is_living(path: Path, process_id: int) -> bool:
    """Whether `path` is being written by the process that its name tells."""
    if process_id == os.getpid():
        return path.with_suffix(".tmp").name in _being_written
    if sys.platform == "win32":  # there the signal 0 is no question but Ctrl+C
        return True
    try:
        os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@functools.cache
def _umask() -> int:
    """Asked once: to ask is to set it for a moment, for all threads, which may be asking too."""
    mask = os.umask(0)
    os.umask(mask)
    return mask

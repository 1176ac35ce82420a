"""A disk that takes no more: one error, whatever was being written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llamita.errors import TrainingError


class DiskError(TrainingError):
    """There is no room for a run on the disk."""


def cannot_write(what: str, path: Path, error: OSError, whose: str = "") -> DiskError:
    """The error for `what`, which was to be written to `path`; `whose` stands before it."""
    reason = f": {error.strerror}" if error.strerror else ""
    place = next(folder for folder in (path, *path.parents) if folder.is_dir())
    free = shutil.disk_usage(place).free
    return DiskError(
        f"{whose}cannot write {what}{reason}; the disk of {place} has {free / 1e6:,.1f} MB free.",
        hint="Make room and run the same command again: the checkpoints so far are whole.",
    )


@contextmanager
def named_disk_errors(what: str, path: Path) -> Iterator[None]:
    """Tell what the system refuses inside the block as `cannot_write` does."""
    try:
        yield
    except OSError as error:
        raise cannot_write(what, path, error) from error

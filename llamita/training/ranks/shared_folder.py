"""Whether all ranks see the run's folder: each writes its part of a checkpoint there."""

from __future__ import annotations

import secrets
import socket
import time
from pathlib import Path

from llamita.errors import TrainingError
from llamita.files import temporary_prefix
from llamita.training.machine.disk import named_disk_errors
from llamita.training.ranks.world import World

_PATIENCE = 60.0  # seconds; NFS may remember that long that there was no such folder


def check_shared(folder: Path, world: World, patience: float = _PATIENCE) -> None:
    """Make sure that what rank 0 writes into `folder` is what every rank reads there.

    Args:
        patience: for how many seconds a rank looks again.

    Raises:
        TrainingError: a rank does not see it, or rank 0 cannot write.
    """
    if world.size == 1:
        return
    word = secrets.token_hex(4)
    # Of a killed run it is a leftover, which the next one removes.
    name, word = world.from_first((f"{temporary_prefix('shared')}{word}.tmp", word))
    token = folder / name
    try:
        with world.agreed(), named_disk_errors("into the run's folder", folder):
            if world.is_first:
                token.write_text(word, encoding="utf-8")
        with world.agreed():
            if not _appears(token, word, patience):
                raise TrainingError(
                    f"{folder} on {socket.gethostname()} is not the folder that rank 0 writes to.",
                    hint="Put the run (-o) on a file system that all machines share.",
                )
    finally:
        if world.is_first:
            token.unlink(missing_ok=True)


def _appears(token: Path, word: str, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while True:
        try:
            if token.read_text(encoding="utf-8") == word:
                return True
        except OSError:
            pass
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)

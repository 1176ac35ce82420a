"""`complete.json`: the list of a checkpoint's files, by which a whole one is told from a torn one.

The work is shared: each rank hashes the files that it wrote, and its part of those that are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llamita.errors import LlamitaError
from llamita.files import read_json, sha256_file
from llamita.training.ranks.world import World

MARKER = "complete.json"

_OF_RANK = re.compile(r"__(\d+)_\d+\.distcp")  # torch.distributed.checkpoint's names


def own_files(folder: Path, rank: int) -> dict[str, dict[str, Any]]:
    """Size and hash of the files that a rank wrote; what names no rank is of rank 0.

    Raises:
        OSError: one cannot be read.
    """
    return {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
        for path in sorted(folder.iterdir())
        if _owner(path.name) == rank
    }


def examine(folder: Path, world: World) -> tuple[dict[str, Any], str | None]:
    """What `complete.json` says, and what is wrong with the checkpoint: None if it is whole.

    All ranks together, and all get the same answer.
    """
    content = world.from_first(_read_marker(folder) if world.is_first else None)
    if content is None:
        return {}, f"it was not finished (no whole {MARKER})"
    files = list(content["files"].items())
    problems = world.gather(_damage(folder, files[world.rank :: world.size]))
    return content, next((problem for problem in problems if problem), None)


def _owner(name: str) -> int:
    match = _OF_RANK.fullmatch(name)
    return int(match[1]) if match else 0


def _read_marker(folder: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = read_json(folder / MARKER)
        content["progress"]["step"], content["files"][".metadata"]
        for expected in content["files"].values():
            expected["bytes"], expected["sha256"]
    except (LlamitaError, KeyError, TypeError, AttributeError):
        return None
    return content


def _damage(folder: Path, files: Iterable[tuple[str, dict[str, Any]]]) -> str | None:
    """What is wrong with the first of `files` that is not as listed."""
    for name, expected in files:
        path = folder / name
        if not path.is_file():
            return f"its file {name} is missing"
        try:
            size = path.stat().st_size
            if size != expected["bytes"]:
                return f"its file {name} has {size} bytes instead of {expected['bytes']}"
            if sha256_file(path) != expected["sha256"]:
                return f"the content of its file {name} has changed"
        except OSError as error:
            return f"its file {name} cannot be read ({error.strerror})"
    return None

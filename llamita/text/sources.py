"""Which files hold text: named files and the readable ones in folders, in a fixed order.

A folder is walked in sorted order, so the same folder always gives the same documents in the same
order. What is passed over in it is counted, so that nothing goes missing unsaid.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Literal

from llamita.errors import DataError

Kind = Literal["text", "jsonl", "json"]
"""A file of the last kind is one list of what lines of JSONL are; it is read where it is named
itself, as most files of this suffix in folders are no text."""
KINDS: dict[str, Kind] = {".txt": "text", ".md": "text", ".jsonl": "jsonl"}
COMPRESSIONS = (".gz", ".zst")
READABLE = ".txt, .md and .jsonl files, .json files by name, each also as .gz or .zst"


@dataclass(frozen=True)
class TextFile:
    """One file of text. `compression` is "", ".gz" or ".zst"."""

    path: Path
    kind: Kind
    compression: str

    def __str__(self) -> str:
        return _printable(self.path.as_posix())


@dataclass
class FoundFiles:
    """The files to read, and what was passed over in folders: how many of each suffix."""

    files: list[TextFile] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def find_text_files(paths: Sequence[Path]) -> FoundFiles:
    """Every text file that `paths` name, folders walked recursively, each file once.

    In folders, hidden files and folders and what llamita itself wrote (folders with its
    `manifest.json`) are left out; files of other kinds are counted in `skipped`.

    Raises:
        DataError: a path is not there or no text, or nothing readable was found at all.
    """
    found = FoundFiles()
    seen: set[Path] = set()
    for path in paths:
        for file in _files_of(path, found.skipped):
            resolved = file.path.resolve()
            if resolved not in seen:
                seen.add(resolved)
                found.files.append(file)
    if not found.files:
        where = ", ".join(path.as_posix() for path in paths) or "an empty list of paths"
        skipped = f" (passed over: {describe_skipped(found.skipped)})" if found.skipped else ""
        raise DataError(f"no text files in {where}{skipped}.", hint=f"llamita reads {READABLE}.")
    return found


def describe_skipped(skipped: Counter[str]) -> str:
    """`3 .pdf, 1 .png`, the most frequent first."""
    return ", ".join(f"{count} {suffix}" for suffix, count in skipped.most_common())


def _files_of(path: Path, skipped: Counter[str]) -> list[TextFile]:
    if path.is_dir():
        return _walk(path, skipped)
    if not path.exists():
        raise DataError(f"there is no file or folder {path.as_posix()}.")
    if not path.is_file():
        raise DataError(
            f"{path.as_posix()} is not a regular file.",
            hint="Text is read more than once: save it to a file first.",
        )
    file = _classify(path) or _json_list(path)
    if file is None:
        raise DataError(
            f"cannot tell what kind of text {path.as_posix()} is.",
            hint=f"llamita reads {READABLE}: convert or rename the file.",
        )
    return [file]


def _json_list(path: Path) -> TextFile | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    return TextFile(path, "json", compression) if suffixes[-1:] == [".json"] else None


def _walk(root: Path, skipped: Counter[str]) -> list[TextFile]:
    files = []
    for directory, folders, names in os.walk(root, onerror=_unreadable_folder):
        here = Path(directory)
        if here != root and _written_by_llamita(here):
            skipped["llamita output folder"] += 1
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith("."):
                continue
            path = here / name
            file = _classify(path) if path.is_file() and PurePath(name).suffix else None
            if file is None:
                skipped[_printable(PurePath(name).suffix.lower()) or "without suffix"] += 1
            else:
                files.append(file)
    return files


def _classify(path: Path) -> TextFile | None:
    """The kind of a file by its name; a name without any suffix counts as plain text."""
    name = PurePath(path.name.lower())
    compression = ""
    if name.suffix in COMPRESSIONS:
        compression = name.suffix
        name = name.with_suffix("")
    kind = KINDS.get(name.suffix) if name.suffix else "text"
    return None if kind is None else TextFile(path, kind, compression)


def _printable(name: str) -> str:
    """A file's name in a form that can be written as UTF-8: bytes that are none are escaped."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _written_by_llamita(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and "llamita_version" in manifest


def _unreadable_folder(error: OSError) -> None:
    raise DataError(f"cannot read the folder {error.filename}: {error.strerror}.") from error

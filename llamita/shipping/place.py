"""Where a conversion writes: a folder of its own, or one file in a folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamita.errors import CheckpointError, ConfigError
from llamita.files import replace_directory, replace_files
from llamita.shipping.report import VERIFY_JSON, mark_name, read_reports, write_reports
from llamita.shipping.targets import TARGETS, Plan, Target
from llamita.tokenizer.files import SIDE_FILES, TOKENIZER_JSON

_SLACK = 2**20
_TOKENIZER_FILES = frozenset({TOKENIZER_JSON, *SIDE_FILES})
"""What a model in a folder is read with, if it is there."""


@dataclass(frozen=True)
class Place:
    """A destination.

    Attributes:
        path: as the user wrote it.
        file_name: of the weights, where `path` is that file; None where it is a folder.
    """

    path: Path
    file_name: str | None

    @property
    def folder(self) -> Path:
        """Where `verify.json` lies."""
        return self.path if self.file_name is None else self.path.parent


def choose_target(name: str | None, destination: Path) -> Target:
    """The target called `name`, or the one that the destination's suffix means.

    Raises:
        ConfigError: there is no such target, or the suffix leaves it open.
    """
    if name is None:
        fitting = [t for t in TARGETS.values() if destination.suffix in t.suffixes]
        if len(fitting) != 1:
            raise ConfigError(
                f"--to is left out, and the name {destination.name} does not say the format.",
                hint=f"Add --to {'|'.join(TARGETS)}.",
            )
        return fitting[0]
    if name not in TARGETS:
        raise ConfigError(f"--to is {name!r}; known are {', '.join(TARGETS)}.")
    return TARGETS[name]


def place_of(target: Target, destination: Path) -> Place:
    """What `destination` means to `target`.

    Raises:
        ConfigError: its suffix is another format's.
    """
    if destination.suffix in target.suffixes:
        return Place(destination, destination.name)
    for other in TARGETS.values():
        if destination.suffix in other.suffixes and not destination.is_dir():
            raise ConfigError(
                f"{destination} has the suffix of {other.name}; --to is {target.name}.",
                hint="Name a folder, or a file with the suffix of the format.",
            )
    return Place(destination, None)


def check_free(place: Place, source: Path, overwrite: bool) -> None:
    """Refuse a destination that something would be lost at.

    Raises:
        CheckpointError: it is there and may not be replaced, or it holds the source.
    """
    path, here = place.path.resolve(), source.resolve()
    if here == path or path in here.parents:
        raise CheckpointError(
            f"{place.path} is the source {source}, or holds it; converting would replace it.",
            hint="Name another destination.",
        )
    if place.folder.exists() and not place.folder.is_dir():
        raise CheckpointError(f"{place.folder} is a file; a folder is needed there.")
    if place.file_name is not None and place.path.is_dir():
        raise CheckpointError(f"{place.path} is a folder; a file is to be written there.")
    if not place.path.exists() and not place.path.is_symlink():
        return
    if place.file_name is None and not any(place.path.iterdir()):
        return
    if not overwrite:
        raise CheckpointError(
            f"{place.path} exists.",
            hint="Name another destination, or pass --overwrite to replace a former conversion.",
        )
    former = read_reports(place.folder).get(place.file_name)
    if former is None:
        raise CheckpointError(
            f"{place.path} is not the result of a conversion; --overwrite replaces nothing else.",
            hint="Name another destination, or remove it first.",
        )
    if place.file_name is None:
        known = {*former["files"], VERIFY_JSON, mark_name(None)}
        for found in sorted(place.path.rglob("*")):
            name = found.relative_to(place.path).as_posix()
            if not found.is_dir() and name not in known:
                raise CheckpointError(
                    f"{place.path} holds {name} besides a former conversion; it would be lost.",
                    hint="Move it away, or name another destination.",
                )


def check_side_files(place: Place, plan: Plan) -> None:
    """Refuse files beside the destination that are not this result's alone and would not fit both.

    Whatever is there stays as it is, unless a former conversion to this very file made it, and no
    other result in the folder is read with it.

    Raises:
        CheckpointError: the message names the file.
    """
    if place.file_name is None or not plan.side_files:
        return
    reports = read_reports(place.folder)
    own = _listed(reports.pop(place.file_name, {}))
    for other, report in reports.items():
        theirs = _listed(report) & _TOKENIZER_FILES
        if not theirs or other is None:
            continue
        for name in sorted(theirs | set(plan.side_files)):
            if name not in theirs or not _holds(place.folder / name, plan.side_files.get(name)):
                raise _refusal(place, name, f"would not stay as it is, and {other} is read with it")
    for name in sorted({*plan.side_files, *_TOKENIZER_FILES} - own):
        if (place.folder / name).exists() and not _holds(
            place.folder / name, plan.side_files.get(name)
        ):
            raise _refusal(place, name, "is there already, with other content than is wanted")


def begin_replacing(place: Place, report: dict[str, Any]) -> None:
    """Take back what a folder says of a file, before the parts of its successor move in.

    They move one by one: whoever is killed between two leaves a report that vouches for nothing.
    Files of the former result that the new one has not go now.

    Args:
        report: of the new result.
    """
    if place.file_name is None:
        return
    reports = read_reports(place.folder)
    former = _listed(reports.pop(place.file_name, {}))
    files = sorted(former | set(report["files"]))
    withdrawn = {
        **report,
        "status": "unverified",
        "same": None,
        "weights": {},
        "files": files,
        "notes": ["a conversion that was replacing it did not end: run it again, --overwrite."],
    }
    write_reports(place.folder, place.file_name, withdrawn, reports)
    shared = {name for other in reports.values() for name in _listed(other)}
    for name in (former & _TOKENIZER_FILES) - set(report["files"]) - shared:
        (place.folder / name).unlink(missing_ok=True)


def check_space(place: Place, needed: int) -> None:
    """Refuse what the disk cannot hold.

    Raises:
        CheckpointError: with both sizes.
    """
    folder = place.folder.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed + _SLACK > free:
        raise CheckpointError(
            f"{place.path} needs {needed / 1e9:.2f} GB; {free / 1e9:.2f} GB are free there.",
            hint="Make room, name a destination on another disk, or take a smaller --quant.",
        )


@contextmanager
def writing(place: Place) -> Iterator[Path]:
    """A temporary folder whose content is at its place when the block ends well."""
    if place.file_name is None:
        with replace_directory(place.path) as temporary:
            yield temporary
    else:
        with replace_files(place.path, last=VERIFY_JSON) as temporary:
            yield temporary


def _listed(report: Mapping[str, Any]) -> set[str]:
    """The files that a report names; it may be a stranger's."""
    names = report.get("files", [])
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _holds(path: Path, data: bytes | None) -> bool:
    """Whether a file holds `data`; None: whether there is none."""
    if data is None:
        return not path.exists()
    return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data


def _refusal(place: Place, name: str, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{place.folder / name} {reason}.",
        hint="Write into a folder of its own, or leave the tokenizer out with --no-tokenizer.",
    )

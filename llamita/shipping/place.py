"""Where a conversion writes: a folder of its own, or one file in a folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llamita.errors import CheckpointError, ConfigError
from llamita.files import replace_directory, replace_files
from llamita.shipping.report import VERIFY_JSON, mark_name, read_reports
from llamita.shipping.targets import TARGETS, Plan, Target

_SLACK = 2**20


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
    """Refuse to replace files beside the destination that no former conversion made.

    Raises:
        CheckpointError: there is one, with other content.
    """
    if place.file_name is None:
        return
    former = read_reports(place.folder).get(place.file_name, {})
    for name, data in plan.side_files.items():
        path = place.folder / name
        if name in former.get("files", ()) or not path.exists():
            continue
        if not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data:
            raise CheckpointError(
                f"{path} is there already, with other content than would be written.",
                hint="Write into a folder of its own, or leave the tokenizer out with "
                "--no-tokenizer.",
            )


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

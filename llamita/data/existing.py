"""What already lies where data is to be written, and whether it may be replaced.

Only prepared data is ever replaced: a wrong `-o` must not cost anyone a folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

from llamita.data.dataset import check_shards
from llamita.data.manifest import MANIFEST_NAME, Manifest, Settings, Source
from llamita.errors import DataError
from llamita.files import read_json


def refuse_other_content(out: Path) -> None:
    """Raise DataError when `out` is there and is neither empty nor prepared data."""
    if not _is_free(out) and not is_prepared(out):
        raise DataError(
            f"{out.as_posix()} exists and is not prepared data, so it is left alone.",
            hint="Choose another name with -o.",
        )


def same_data_at(
    out: Path, sources: Sequence[Source], settings: Settings, force: bool
) -> Manifest | None:
    """The manifest at `out` when it was made from these sources and settings and is whole; None
    when `out` is free to be written.

    Raises:
        DataError: `out` holds other data, and not `force`.
    """
    if _is_free(out):
        return None
    try:
        manifest = Manifest.load(out)
        check_shards(out, manifest)
    except DataError as error:
        problem = f"is not whole: {error.message}"
    else:
        if manifest.settings == settings and _contents(manifest.sources) == _contents(sources):
            return manifest
        problem = "was made from other text or with other settings."
    if force:
        return None
    raise DataError(
        f"{out.as_posix()} holds prepared data that {problem}",
        hint="Choose another name with -o, or replace it with --force.",
    )


def _is_free(out: Path) -> bool:
    return not out.exists() or (out.is_dir() and not any(out.iterdir()))


def is_prepared(out: Path) -> bool:
    """Whether `llamita prepare` made what is there."""
    if not (out / MANIFEST_NAME).is_file():
        return False
    try:
        manifest = read_json(out / MANIFEST_NAME)
    except DataError:
        return False
    return isinstance(manifest, dict) and manifest.get("kind") == "data"


def _contents(sources: Sequence[Source]) -> list[tuple[str, int, str]]:
    """Sources without the folders they lie in: the same text moved elsewhere is the same text."""
    return [(PurePath(source.path).name, source.bytes, source.sha256) for source in sources]

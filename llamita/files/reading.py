"""Reading strangers' files within bounds: plain files of bounded size, JSON of bounded content.

A pipe would wait forever, and a few bytes of JSON can ask for gigabytes.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections import Counter
from pathlib import Path
from typing import Any

from llamita.errors import DataError, LlamitaError

LARGEST_JSON = 16_000_000
"""Bytes. An empty list takes three in a file and sixty in memory; real configs have thousands."""

_MOST_CONTAINERS, _MOST_VALUES, _DEEPEST = 4_000_000, 8_000_000, 100
_MOST_DIGITS = 100
"""transformers writes 10 ** 30 for a length without limit; what is above 10 ** 308 is no float."""


def check_plain_file(path: Path, error: type[LlamitaError] = DataError) -> int:
    """The size in bytes of a file that can be opened; anything else raises `error`.

    A pipe, a socket or a device is refused without opening it, for that could wait forever.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a device or a pipe"
            raise error(f"cannot read {path}: it is {kind}, not a file.")
        path.open("rb").close()
    except FileNotFoundError:
        raise error(f"there is no file {path}.") from None
    except OSError as cause:
        raise error(f"cannot read {path}: {cause.strerror}.") from cause
    except ValueError as cause:  # a zero byte or a lone surrogate in the name
        raise error(f"cannot read {str(path)!r}: {cause}.") from cause
    return status.st_size


def read_bounded(path: Path, limit: int, error: type[LlamitaError] = DataError) -> bytes:
    """The bytes of a plain file; one of more than `limit` bytes raises `error`."""
    size = check_plain_file(path, error)
    if size > limit:
        raise error(f"{path} has {size:,} bytes; a file of its kind has at most {limit:,}.")
    try:
        with path.open("rb") as handle:
            return handle.read(limit + 1)[:limit]
    except OSError as cause:
        raise error(f"cannot read {path}: {cause.strerror}.") from cause


def read_json(path: Path, error: type[LlamitaError] = DataError, limit: int = LARGEST_JSON) -> Any:
    """Parse a JSON file; a missing, broken or monstrous one raises `error` naming the file."""
    return parse_json(read_bounded(path, limit, error), path, error)


def parse_json(
    data: bytes | str,
    source: Path | str,
    error: type[LlamitaError] = DataError,
    *,
    unique_keys: bool = False,
) -> Any:
    """Parse JSON from a stranger; `error` names the `source`.

    Of a key that stands twice in one object the last value counts, unless `unique_keys` is set.

    Nesting, the number of values and the size of whole numbers are bounded, so that the values
    take no more than a few hundred megabytes and can be walked, printed and compared.
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        if text.count("[") + text.count("{") > _MOST_CONTAINERS or text.count(",") > _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES:,} values")
        pairs = _unique if unique_keys else None
        value = json.loads(text, parse_int=_parse_integer, object_pairs_hook=pairs)
        _check_depth(value)
    except (ValueError, RecursionError) as cause:
        raise error(f"cannot read {source} as JSON: {cause}.") from cause
    return value


def _parse_integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"the number {digits[:20]}… has {len(digits)} digits")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"it has the key {twice!r} twice")
    return table


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {_DEEPEST} deep")


def sha256_text(text: str) -> str:
    """`sha256:` and the hash of a text, as fingerprints are written."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()

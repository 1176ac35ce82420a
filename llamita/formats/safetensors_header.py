"""The header of a safetensors file, checked before the library and before anything is allocated.

A header is JSON: for each tensor its dtype, its shape and where its bytes begin and end. What it
claims must be what the file holds: every byte of the data belongs to exactly one tensor
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from llamita.errors import CheckpointError
from llamita.files import check_plain_file, parse_json

LARGEST_HEADER = 16_000_000
"""Bytes. A tensor takes about a hundred, and the largest models in one file have thousands."""

_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
_MOST_DIMENSIONS = 8
_HINT = "The file is damaged or not whole: copy or download it again."


def check_header(path: Path) -> None:
    """Check that the header of `path` describes exactly the file that it heads.

    Raises:
        CheckpointError: it does not, or there is no such file; the message says what is wrong.
    """
    size = check_plain_file(path, CheckpointError)
    try:
        with path.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if size < 10 or length > size - 8:
                raise _damaged(path, f"it has {size:,} bytes, and its header claims {length:,}")
            if length > LARGEST_HEADER:
                raise _damaged(path, f"its header claims {length:,} bytes")
            header = parse_json(handle.read(length), path, CheckpointError, unique_keys=True)
    except OSError as cause:
        raise CheckpointError(f"cannot read {path}: {cause.strerror}.") from cause
    if not isinstance(header, dict):
        raise _damaged(path, "its header is no JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _damaged(path, "its __metadata__ is no table of texts")
    spans = sorted((*_check_entry(path, name, entry), name) for name, entry in header.items())
    end = 0
    for start, stop, name in spans:
        if start != end:
            kind = "overlaps the one before it" if start < end else "begins after a hole"
            raise _damaged(path, f"the tensor {name} {kind} (byte {start:,}, not {end:,})")
        end = stop
    if end != size - 8 - length:
        raise _damaged(
            path, f"its tensors take {end:,} bytes, and {size - 8 - length:,} follow its header"
        )


def _check_entry(path: Path, name: str, entry: Any) -> tuple[int, int]:
    """Where a tensor's bytes begin and end, if its entry makes sense."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _damaged(path, f"the tensor {name} lacks dtype, shape or data_offsets")
    bits = _BITS.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if bits is None:
        raise _damaged(path, f"the tensor {name} has the dtype {entry['dtype']!r}")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _are_counts(shape) or len(shape) > _MOST_DIMENSIONS:
        raise _damaged(path, f"the tensor {name} has the shape {shape!r}")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise _damaged(path, f"the tensor {name} has the data_offsets {offsets!r}")
    start, stop = offsets
    if (stop - start) * 8 != math.prod(shape) * bits:
        raise _damaged(
            path,
            f"the tensor {name} of shape {shape} and dtype {entry['dtype']} has the data_offsets "
            f"{offsets}",
        )
    return start, stop


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"cannot read {path} as safetensors: {why}.", hint=_HINT)

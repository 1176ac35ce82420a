"""The header of a GGUF file: its metadata and where its tensors lie, checked before it is used.

Every count and length is compared with what the file still holds before anything is made of it,
so that a damaged or hostile file costs one clear error. Versions 2 and 3, little endian. The
format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from llamita.errors import CheckpointError
from llamita.formats.gguf_values import DAMAGED, Cursor, Value
from llamita.quantization.kinds import BY_NUMBER, FOREIGN, Kind, fits_rows

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_DIMENSIONS = 4
_LONGEST_NAME = 64
_MOST_ENTRIES = 1 << 16
"""Keys, and tensors: many times what any model has."""

_USUAL_ALIGNMENT = 32
_LARGEST_ALIGNMENT = 1 << 20
_LEAST_KEY_BYTES = 8 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of the file.

    Attributes:
        shape: outermost first, as in PyTorch; the file has it the other way round.
        start: of its bytes in the file.
        size: in bytes.
    """

    name: str
    shape: tuple[int, ...]
    kind: Kind
    start: int
    size: int


@dataclass(frozen=True)
class GGUFHeader:
    """What a GGUF file says, and its bytes.

    Attributes:
        metadata: numbers, truth values, text, lists of text, and numpy arrays of numbers. A
            float32 is the shortest decimal that means it.
        data: the whole file, uint8, mapped privately: writing to it leaves the file alone.
    """

    path: Path
    version: int
    metadata: dict[str, Value]
    tensors: dict[str, TensorInfo]
    data: torch.Tensor

    def bytes_of(self, info: TensorInfo) -> torch.Tensor:
        """The bytes of one tensor, mapped."""
        return self.data[info.start : info.start + info.size]


def read_gguf_header(path: Path) -> GGUFHeader:
    """Parse and check the header of the file at `path`.

    Raises:
        CheckpointError: it cannot be read, is no GGUF, or something in it cannot be; the message
            says what and where.
    """
    try:
        with path.open("rb") as handle:
            if handle.seek(0, 2) < len(MAGIC):
                raise CheckpointError(f"{path} is too short for a GGUF file.", hint=DAMAGED)
            mapped = _map_privately(handle.fileno())
    except OSError as cause:
        raise CheckpointError(f"cannot read {path}: {cause.strerror}.") from cause
    cursor = Cursor(mapped, path)
    version, tensor_count, key_count = _read_preamble(cursor)
    metadata: dict[str, Value] = {}
    for _ in range(key_count):
        start = cursor.position
        key = cursor.text("a key", longest=(1 << 16) - 1)
        if key in metadata:
            cursor.refuse(f"the key {key!r} stands there twice", start)
        metadata[key] = cursor.value(key)
    tensors = _read_tensor_infos(cursor, tensor_count, _alignment(cursor, metadata))
    data = torch.from_numpy(np.frombuffer(mapped, dtype=np.uint8))
    return GGUFHeader(path, version, metadata, tensors, data)


def _map_privately(descriptor: int) -> mmap.mmap:
    """Writable without touching the file; no memory is set aside for what nobody writes."""
    if sys.platform != "linux":
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    no_reserve = 0x4000  # MAP_NORESERVE, which the module does not name
    flags, access = mmap.MAP_PRIVATE | no_reserve, mmap.PROT_READ | mmap.PROT_WRITE
    return mmap.mmap(descriptor, 0, flags=flags, prot=access)


def _read_preamble(cursor: Cursor) -> tuple[int, int, int]:
    """Version, number of tensors, number of keys."""
    magic = cursor.take(len(MAGIC), "the first bytes")
    if magic == MAGIC[::-1]:
        _refuse_big_endian(cursor)
    if magic != MAGIC:
        raise CheckpointError(f"{cursor.path} is no GGUF file: it does not begin with GGUF.")
    version = cursor.unsigned(4, "the version")
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        if swapped in (1, *_VERSIONS):
            _refuse_big_endian(cursor)
        raise CheckpointError(
            f"{cursor.path} is GGUF version {version}; read are 2 and 3.",
            hint="Make it anew with a current llama.cpp." if version == 1 else DAMAGED,
        )
    tensor_count = cursor.count("tensors", _LEAST_TENSOR_BYTES, _MOST_ENTRIES)
    key_count = cursor.count("keys", _LEAST_KEY_BYTES, _MOST_ENTRIES)
    return version, tensor_count, key_count


def _refuse_big_endian(cursor: Cursor) -> NoReturn:
    raise CheckpointError(
        f"{cursor.path} is a big-endian GGUF file; only little-endian ones are read.",
        hint="Convert it with gguf-convert-endian of the gguf package.",
    )


def _alignment(cursor: Cursor, metadata: dict[str, Value]) -> int:
    """Tensors begin at multiples of it."""
    alignment = metadata.get("general.alignment", _USUAL_ALIGNMENT)
    good = type(alignment) is int and 0 < alignment <= _LARGEST_ALIGNMENT
    if not good or alignment & (alignment - 1):  # type: ignore[operator]
        cursor.refuse(f"general.alignment is {alignment!r}; it must be a power of two", None)
    assert isinstance(alignment, int)
    return alignment


def _read_tensor_infos(cursor: Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    """The tensors by name, none of them out of the file or over another."""
    described: dict[str, tuple[tuple[int, ...], Kind, int]] = {}
    for _ in range(count):
        start = cursor.position
        name = cursor.text("a tensor's name", longest=_LONGEST_NAME)
        if name in described:
            cursor.refuse(f"the tensor {name!r} stands there twice", start)
        described[name] = _read_tensor_info(cursor, name, alignment)
    first = -(-cursor.position // alignment) * alignment
    tensors = {}
    for name, (shape, kind, offset) in described.items():
        rows = 1
        for length in shape[:-1]:
            rows *= length
        size = rows * kind.row_bytes(shape[-1])
        if first + offset + size > cursor.size:
            raise CheckpointError(
                f"{cursor.path} has {cursor.size} bytes, but its tensor {name} would end at byte "
                f"{first + offset + size}: the file is not whole.",
                hint=DAMAGED,
            )
        tensors[name] = TensorInfo(name, shape, kind, first + offset, size)
    end, before = first, ""
    for info in sorted(tensors.values(), key=lambda info: info.start):
        if info.start < end:
            cursor.refuse(f"the tensors {before} and {info.name} overlap", info.start)
        end, before = info.start + info.size, info.name
    return tensors


def _read_tensor_info(
    cursor: Cursor, name: str, alignment: int
) -> tuple[tuple[int, ...], Kind, int]:
    """Shape, kind and offset of one tensor."""
    start = cursor.position
    dimensions = cursor.unsigned(4, f"the number of dimensions of {name}")
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        cursor.refuse(f"{name} has {dimensions} dimensions; it may have 1 to 4", start)
    shape = tuple(cursor.unsigned(8, f"the shape of {name}") for _ in range(dimensions))[::-1]
    total = 1
    for length in shape:
        total *= length
    if total == 0 or total >= 1 << 63:
        cursor.refuse(f"{name} has the shape {list(shape)}, which holds nothing or too much", start)
    start = cursor.position
    number = cursor.unsigned(4, f"the type of {name}")
    kind = BY_NUMBER.get(number)
    if kind is None:
        _refuse_kind(cursor, name, number, start)
    if not fits_rows(kind, shape):
        cursor.refuse(
            f"{name} has rows of {shape[-1]} numbers of {kind.name}, "
            f"whose blocks are {kind.block_size}",
            start,
        )
    start = cursor.position
    offset = cursor.unsigned(8, f"the offset of {name}")
    if offset % alignment:
        cursor.refuse(f"the offset {offset} of {name} is no multiple of {alignment}", start)
    return shape, kind, offset


def _refuse_kind(cursor: Cursor, name: str, number: int, start: int) -> NoReturn:
    if number in FOREIGN:
        raise CheckpointError(
            f"{cursor.path} holds {name} as {FOREIGN[number]}, which is not read.",
            hint="Take a file in F16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 or a k-quant (Q4_K_M, …).",
        )
    cursor.refuse(f"{name} has the unknown type {number}", start)

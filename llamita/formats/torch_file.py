"""PyTorch's own files (`.bin`, `.pt`, `.pth`): pickles, read as weights only.

Unpickling a stranger's file can run code. Here nothing is unpickled: `pickled.py` follows the
pickle's steps, and what needs more than tensors and plain containers is refused. The tensors are
views on the mapped file, whether it is a zip archive or the plain sequence of before PyTorch 1.6.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llamita.errors import CheckpointError
from llamita.files import check_plain_file
from llamita.formats.pickled import load_pickle
from llamita.formats.torch_records import (
    GlobalName,
    MoreThanWeights,
    StorageRecord,
    TensorRecord,
)
from llamita.formats.zip_directory import Span, read_zip_directory

LARGEST_PICKLE = 64_000_000
"""Bytes beside the tensors. A model's take about two hundred for each of them."""

_MOST_VALUES, _DEEPEST = 1_000_000, 50
_SPARE_BYTES = 1 << 24
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_Find = Callable[[StorageRecord], Span]


def read_torch_file(path: Path) -> Any:
    """The file's content: tensors in plain containers, mapped privately.

    Raises:
        CheckpointError: the file is damaged, or holds objects that only code could make.
    """
    size = check_plain_file(path, CheckpointError)
    try:
        with path.open("rb") as handle:
            if size == 0:
                raise ValueError("it is empty")
            mapped = mmap.mmap(handle.fileno(), size, access=mmap.ACCESS_COPY)
            if mapped[:4] == b"PK\x03\x04":
                content, find = _read_archive(mapped, read_zip_directory(handle))
            else:
                content, find = _read_sequence(mapped)
        return _Tensors(mapped, find).resolve(content)
    except MoreThanWeights as cause:
        raise CheckpointError(
            f"{path} holds more than weights ({cause}); reading it could run code: refused.",
            hint="Ask for the model as safetensors.",
        ) from cause
    except OSError as cause:
        raise CheckpointError(f"cannot read {path}: {cause.strerror}.") from cause
    except ValueError as cause:
        raise CheckpointError(
            f"cannot read {path} as a PyTorch file: {cause}.",
            hint="The file is damaged or not whole: copy or download it again.",
        ) from cause


def read_torch_state_dict(path: Path) -> dict[str, Tensor]:
    """A file whose content is a state dict.

    Raises:
        CheckpointError: it is something else, or cannot be read.
    """
    content = read_torch_file(path)
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise CheckpointError(f"{path} is not a state dict: it holds {type(content).__name__}.")
    return content


def _read_archive(mapped: mmap.mmap, files: dict[str, Span]) -> tuple[Any, _Find]:
    """A zip archive: `NAME/data.pkl`, and each storage as `NAME/data/KEY`."""
    pickles = [name for name in files if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ValueError("it is a zip archive without a data.pkl")
    folder = pickles[0].removesuffix("data.pkl")
    if f"{folder}constants.pkl" in files:
        raise MoreThanWeights("a TorchScript program")
    order = files.get(f"{folder}byteorder")
    if order is not None and mapped[order.start : order.start + 6] != b"little":
        raise ValueError("its numbers are not little-endian")
    where = files[pickles[0]]
    if where.size > LARGEST_PICKLE:
        raise ValueError(f"its data.pkl has {where.size:,} bytes")
    content = load_pickle(BytesIO(mapped[where.start : where.start + where.size]))

    def find(storage: StorageRecord) -> Span:
        name = f"{folder}data/{storage.key}"
        if name not in files:
            raise ValueError(f"it lacks {name!r}")
        return files[name]

    return content, find


def _read_sequence(mapped: mmap.mmap) -> tuple[Any, _Find]:
    """The form of before PyTorch 1.6: pickles, then each storage behind its number of elements."""
    stream = BytesIO(mapped[:LARGEST_PICKLE])
    if load_pickle(stream) != _LEGACY_MAGIC:
        raise ValueError("it does not begin like one")
    load_pickle(stream)  # the version of this form
    system = load_pickle(stream)
    if isinstance(system, dict) and not system.get("little_endian", True):
        raise ValueError("its numbers are not little-endian")
    content = load_pickle(stream)
    keys = load_pickle(stream)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("the list of its storages is damaged")
    spans: dict[str, Span] = {}
    widths = _widths(content)
    position = stream.tell()
    for key in keys:
        numel = int.from_bytes(mapped[position : position + 8], "little")
        span = Span(position + 8, numel * widths.get(key, 1))
        if key in spans or span.start + span.size > len(mapped):
            raise ValueError(f"its storage {key!r} claims {span.size:,} bytes")
        spans[key] = span
        position = span.start + span.size

    def find(storage: StorageRecord) -> Span:
        if storage.key not in spans:
            raise ValueError(f"it lacks the storage {storage.key!r}")
        return spans[storage.key]

    return content, find


def _widths(content: Any) -> dict[str, int]:
    """Bytes in an element of each storage that the content looks at."""
    widths: dict[str, int] = {}

    def note(record: TensorRecord) -> None:
        width = record.storage.width
        if widths.setdefault(record.storage.key, width) != width:
            raise ValueError(f"its storage {record.storage.key!r} has two types")

    _Walk(note).resolve(content)
    return widths


class _Walk:
    """A copy of the content as a tree of plain containers, with its tensors replaced.

    Containers that hold one another more than once are copied as often, within bounds: whoever
    compared or printed such a web would be busy for years.
    """

    def __init__(self, tensor: Callable[[TensorRecord], Any]) -> None:
        self._tensor = tensor
        self._count = 0

    def resolve(self, value: Any, depth: int = 0) -> Any:
        self._count += 1
        if self._count > _MOST_VALUES or depth > _DEEPEST:
            raise ValueError(f"its values are too many, or nested more than {_DEEPEST} deep")
        if isinstance(value, TensorRecord):
            return self._tensor(value)
        if isinstance(value, dict):
            return {key: self.resolve(inner, depth + 1) for key, inner in value.items()}
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return type(value)([self.resolve(inner, depth + 1) for inner in value])
        if isinstance(value, (GlobalName, StorageRecord)):
            raise MoreThanWeights(value.name if isinstance(value, GlobalName) else "a bare storage")
        return value


class _Tensors(_Walk):
    """The content with tensors as views on the mapped file."""

    def __init__(self, mapped: mmap.mmap, find: _Find) -> None:
        super().__init__(self._make)
        self._mapped, self._find = mapped, find
        self._room = 3 * len(mapped) + _SPARE_BYTES
        self._bases: dict[tuple[str, torch.dtype], Tensor] = {}

    def _make(self, record: TensorRecord) -> Tensor:
        # Tensors may share a storage, as tied ones do; a thousand of one storage are a bomb.
        self._room -= record.numel * record.dtype.itemsize
        if self._room < 0:
            raise ValueError("its tensors have many times its own size")
        base = self._base(record.storage, record.dtype)
        return base.as_strided(record.size, record.stride, record.offset)

    def _base(self, storage: StorageRecord, dtype: torch.dtype) -> Tensor:
        key = (storage.key, dtype)
        if key not in self._bases:
            span = self._find(storage)
            if storage.numel * storage.width != span.size:
                raise ValueError(
                    f"its storage {storage.key!r} has {span.size:,} bytes, where "
                    f"{storage.numel:,} numbers of {storage.width} bytes are asked for"
                )
            count = span.size // dtype.itemsize
            if count == 0:
                base = torch.empty(0, dtype=dtype)
            else:
                base = torch.frombuffer(self._mapped, dtype=dtype, count=count, offset=span.start)
            aligned = base.data_ptr() % dtype.itemsize == 0
            self._bases[key] = base if aligned else base.clone()
        return self._bases[key]

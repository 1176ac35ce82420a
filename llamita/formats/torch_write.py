"""Writing PyTorch's `.pt` and `.pth`, one tensor in memory at a time.

`torch.save` wants every tensor at once. The file is an ordinary zip, stored without compression,
whose `data.pkl` refers to one member of raw numbers for each storage; this is how every PyTorch
since 1.6 writes it and reads it, memory-mapped or not.
https://docs.pytorch.org/docs/stable/notes/serialization.html
"""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from llamita.formats.stored import StoredTensor

_STORAGES = {
    torch.float64: torch.DoubleStorage,
    torch.float32: torch.FloatStorage,
    torch.bfloat16: torch.BFloat16Storage,
    torch.float16: torch.HalfStorage,
}
_ALIGNMENT = 64
_CHUNK = 1 << 24
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
_LOCAL_HEADER = 30
_ZIP64_EXTRA = 20
_PADDING_ID = b"FB"  # the id of the extra field that PyTorch pads with


def write_torch_file(content: Any, path: Path) -> None:
    """Write plain containers, numbers, strings and `StoredTensor`s as `torch.save` would.

    A `StoredTensor` that occurs several times (the same object) is stored once, and the tensors
    that are read share their memory.

    Raises:
        OSError: the disk is full, or `path` cannot be written.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(content)
    root = "archive"
    with path.open("wb") as handle, zipfile.ZipFile(handle, "w", zipfile.ZIP_STORED) as archive:

        def add(name: str, data: memoryview | bytes) -> None:
            _add(archive, f"{root}/{name}", data, handle.tell())

        add("data.pkl", buffer.getvalue())
        add("byteorder", sys.byteorder.encode())
        for key, tensor in enumerate(pickler.tensors):
            add(f"data/{key}", _numbers(tensor))
        add("version", b"3\n")


def cast_all(
    tensors: Mapping[str, StoredTensor], dtype: torch.dtype | None
) -> dict[str, StoredTensor]:
    """The tensors as they are to be written; None leaves each its own type."""
    return {
        name: tensor if dtype in (None, tensor.dtype) else _cast(tensor, dtype)
        for name, tensor in tensors.items()
    }


def _cast(tensor: StoredTensor, dtype: torch.dtype | None) -> StoredTensor:
    assert dtype is not None
    return StoredTensor(
        tensor.shape,
        dtype,
        lambda: tensor.read().to(dtype),
        str(dtype).removeprefix("torch."),
        tensor.numel() * dtype.itemsize,
    )


@dataclass(frozen=True)
class _Storage:
    """What the pickle says of one storage."""

    key: int
    tensor: StoredTensor


class _Pickler(pickle.Pickler):
    """Pickles a tensor as a reference to the member that will hold its numbers."""

    def __init__(self, buffer: IO[bytes]) -> None:
        super().__init__(buffer, protocol=2)
        self.tensors: list[StoredTensor] = []

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _Storage):
            return None
        kind, count = _STORAGES[obj.tensor.dtype], obj.tensor.numel()
        return ("storage", kind, str(obj.key), "cpu", count)

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, StoredTensor):
            return NotImplemented
        storage = _Storage(len(self.tensors), obj)
        self.tensors.append(obj)
        shape, strides = tuple(obj.shape), _contiguous_strides(obj.shape)
        # The function's name is part of the file format.
        rebuild = torch._utils._rebuild_tensor_v2
        return rebuild, (storage, 0, shape, strides, False, OrderedDict())


def _contiguous_strides(shape: torch.Size) -> tuple[int, ...]:
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def _numbers(tensor: StoredTensor) -> memoryview:
    numbers = tensor.read().detach().to("cpu", tensor.dtype).contiguous()
    if numbers.shape != tensor.shape:
        raise RuntimeError(f"read the shape {numbers.shape}, where {tensor.shape} was promised")
    return numbers.reshape(-1).view(torch.uint8).numpy().data


def _add(archive: zipfile.ZipFile, name: str, data: memoryview | bytes, offset: int) -> None:
    """Add a member whose bytes begin at a multiple of 64: tensors are mapped where they lie."""
    info = zipfile.ZipInfo(name, _FIXED_DATE)
    info.file_size = len(data)
    info.external_attr = 0o600 << 16
    before = _LOCAL_HEADER + len(name.encode()) + _ZIP64_EXTRA + 4
    padding = -(offset + before) % _ALIGNMENT
    info.extra = _PADDING_ID + padding.to_bytes(2, "little") + b"Z" * padding
    # Left to itself, zipfile guesses by the size whether to write the field for 64-bit sizes.
    with archive.open(info, "w", force_zip64=True) as member:
        for start in range(0, len(data), _CHUNK):
            member.write(data[start : start + _CHUNK])

"""The few functions that PyTorch's pickles may name, and what is done in their place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from llamita.formats.torch_records import (
    MOST_DIMENSIONS,
    GlobalName,
    MoreThanWeights,
    StorageRecord,
    TensorRecord,
    are_counts,
    describe,
    is_plain_key,
)


def call(name: str, arguments: tuple[Any, ...]) -> Any:
    """What the function `name` makes of `arguments`.

    Raises:
        MoreThanWeights: it is none of those that are known here.
        ValueError: the arguments are not those that PyTorch writes.
    """
    if name not in _CALLS:
        raise MoreThanWeights(name)
    try:
        return _CALLS[name](*arguments)
    except TypeError:
        raise ValueError(f"its pickle calls {name} with other values than it takes") from None


def storage(identity: Any) -> StorageRecord:
    """The storage that a persistent id names: ("storage", type, key, place, elements)."""
    match identity:
        case ("storage", GlobalName() as kind, str() as key, _, int() as numel, *rest) if (
            numel >= 0 and rest in ([], [None])
        ):
            return StorageRecord(key, _storage_dtype(kind), numel)
    raise ValueError(f"its pickle refers to a storage by {describe(identity)}")


def _storage_dtype(kind: GlobalName) -> torch.dtype | None:
    module, _, name = kind.name.rpartition(".")
    if kind.name == "torch.storage.UntypedStorage":
        return None
    if module not in ("torch", "torch.cuda") or name not in _STORAGES:
        raise MoreThanWeights(kind.name)
    return _STORAGES[name]


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> TensorRecord:
    dtype = storage.dtype if isinstance(storage, StorageRecord) else None
    return _view(storage, dtype, offset, size, stride)


def _tensor_of_dtype(
    storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any
) -> TensorRecord:
    return _view(storage, dtype, offset, size, stride)


def _view(storage: Any, dtype: Any, offset: Any, size: Any, stride: Any) -> TensorRecord:
    """A tensor all of whose elements lie in the storage, and which has no more than it."""
    if not isinstance(storage, StorageRecord) or not isinstance(dtype, torch.dtype):
        raise ValueError(f"its pickle makes a tensor of {describe(storage)}")
    for value in (size, stride, (offset,)):
        if not are_counts(value) or len(value) > MOST_DIMENSIONS:
            raise ValueError(f"its pickle makes a tensor with {describe(value)} in its shape")
    if len(size) != len(stride):
        raise ValueError(f"its pickle makes a tensor of {len(size)} sizes, {len(stride)} strides")
    record = TensorRecord(storage, dtype, offset, tuple(size), tuple(stride))
    room = storage.numel * storage.width // dtype.itemsize
    if record.end > room or record.numel > room:
        raise ValueError(
            f"its pickle makes a tensor of shape {list(size)} and strides {list(stride)} at "
            f"{offset} of a storage of {room:,} numbers"
        )
    return record


def _parameter(data: Any, *_: Any) -> TensorRecord:
    if not isinstance(data, TensorRecord):
        raise ValueError(f"its pickle makes a parameter of {describe(data)}")
    return data


def _subclass(function: Any, kind: Any, arguments: Any, _state: Any) -> Any:
    """How a plain tensor that carries further attributes is stored."""
    plain = (GlobalName("torch.Tensor"), GlobalName("torch.nn.parameter.Parameter"))
    if kind not in plain or not isinstance(function, GlobalName):
        raise MoreThanWeights(f"a tensor of the kind {describe(kind)}")
    if function.name not in _TENSOR_CALLS or not isinstance(arguments, tuple):
        raise ValueError(f"its pickle makes a tensor by {describe(function)}")
    return call(function.name, arguments)


def _ordered_dict(pairs: Any = ()) -> OrderedDict[Any, Any]:
    table: OrderedDict[Any, Any] = OrderedDict()
    for key, value in pairs:
        if not is_plain_key(key):
            raise MoreThanWeights(f"a table with {describe(key)} as a key")
        table[key] = value
    return table


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise ValueError("its pickle makes bytes of what is no text")
    return text.encode(encoding)


def _bytearray(data: Any = b"") -> bytearray:
    if not isinstance(data, bytes):  # a number would ask for that many bytes
        raise ValueError("its pickle makes bytes of what is none")
    return bytearray(data)


def _set(values: Any = ()) -> set[Any]:
    if not isinstance(values, (list, tuple)) or not all(map(is_plain_key, values)):
        raise MoreThanWeights("a set of other things than plain values")
    return set(values)


def _size(values: Any) -> torch.Size:
    if not are_counts(values) or len(values) > MOST_DIMENSIONS:
        raise ValueError(f"its pickle makes a shape of {describe(values)}")
    return torch.Size(values)


def _device(*arguments: Any) -> torch.device:
    try:
        return torch.device(*arguments)
    except RuntimeError:
        raise ValueError("its pickle names a device that cannot be") from None


_STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
}

_TENSOR_CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_dtype,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
}

_CALLS: dict[str, Callable[..., Any]] = {
    **_TENSOR_CALLS,
    "torch._tensor._rebuild_from_type_v2": _subclass,
    "collections.OrderedDict": _ordered_dict,
    "_codecs.encode": _encode,
    "builtins.bytearray": _bytearray,
    "builtins.set": _set,
    "torch.Size": _size,
    "torch.device": _device,
}

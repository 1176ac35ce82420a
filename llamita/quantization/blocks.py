"""Blocks of a few bits to numbers and back, as ggml defines them.

`dequantize` and `quantize` agree with the `gguf` library to the last bit; that library is right
but takes two seconds for what here takes a quarter of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from llamita.errors import CheckpointError, ConfigError
from llamita.quantization.k_blocks import read_q2_k, read_q3_k, read_q4_k, read_q5_k, read_q6_k
from llamita.quantization.kinds import Kind, kind_of
from llamita.quantization.small_blocks import (
    read_q4_0,
    read_q4_1,
    read_q5_0,
    read_q5_1,
    read_q8_0,
    write_q4_0,
    write_q4_1,
    write_q8_0,
)

_READERS: dict[str, Callable[[Tensor, Tensor], None]] = {
    "Q8_0": read_q8_0,
    "Q4_0": read_q4_0,
    "Q4_1": read_q4_1,
    "Q5_0": read_q5_0,
    "Q5_1": read_q5_1,
    "Q2_K": read_q2_k,
    "Q3_K": read_q3_k,
    "Q4_K": read_q4_k,
    "Q5_K": read_q5_k,
    "Q6_K": read_q6_k,
}
_WRITERS: dict[str, Callable[[Tensor], Tensor]] = {
    "Q8_0": write_q8_0,
    "Q4_0": write_q4_0,
    "Q4_1": write_q4_1,
}
QUANTIZED = tuple(_WRITERS)
"""The block formats that are written."""

_AT_ONCE = 1 << 18
"""Numbers in one go: with their intermediate results they stay in the processor's cache."""


def dequantize(data: Tensor, kind: str, shape: Sequence[int]) -> Tensor:
    """The numbers in `data`, uint8 of any shape, as float32 of `shape`.

    Args:
        kind: "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K" … "Q6_K".

    Raises:
        CheckpointError: the kind is not read, or `data` has another size than `shape` asks for.
    """
    form = kind_of(kind)
    data = data.reshape(-1)
    _check_size(data, form, shape)
    if form.dtype is not None:
        return as_plain_numbers(data, form, shape).float()
    out = torch.empty(tuple(shape), dtype=torch.float32)
    blocks = data.view(-1, form.block_bytes)
    numbers = out.view(-1, form.block_size)
    step = max(_AT_ONCE // form.block_size, 1)
    for start in range(0, len(blocks), step):
        _READERS[form.name](blocks[start : start + step], numbers[start : start + step])
    return out


def as_plain_numbers(data: Tensor, kind: Kind, shape: Sequence[int]) -> Tensor:
    """The bytes of floating-point numbers as such, without a copy where they are aligned."""
    assert kind.dtype is not None
    data = data.reshape(-1)
    if data.data_ptr() % kind.dtype.itemsize or data.storage_offset() % kind.dtype.itemsize:
        data = data.clone()
    return data.view(kind.dtype).view(tuple(shape))


def quantize(tensor: Tensor, kind: str, name: str = "the tensor") -> Tensor:
    """The bytes of `tensor` [..., C] in a kind of numbers: uint8 [..., bytes of a row].

    Args:
        kind: "F32", "F16", "BF16", "Q8_0", "Q4_0" or "Q4_1".
        name: of the tensor, for errors.

    Raises:
        ConfigError: the kind is not written, or rows are no whole blocks.
        CheckpointError: some numbers are NaN or infinite, or too large for the kind.
    """
    form = kind_of(kind)
    if form.dtype is None and form.name not in _WRITERS:
        raise ConfigError(
            f"numbers of type {form.name} are read but not written.",
            hint=f"Written are F32, F16, BF16, {', '.join(QUANTIZED)}.",
        )
    if tensor.shape[-1] % form.block_size:
        raise ConfigError(
            f"the rows of {name} have {tensor.shape[-1]} numbers; {form.name} needs a multiple "
            f"of {form.block_size}."
        )
    out = torch.empty((*tensor.shape[:-1], form.row_bytes(tensor.shape[-1])), dtype=torch.uint8)
    rows = tensor.detach().reshape(-1, tensor.shape[-1])
    out_rows = out.view(len(rows), -1)
    step = max(_AT_ONCE // rows.shape[-1], 1)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        if not bool(torch.isfinite(part).all()):
            raise CheckpointError(
                f"{name} holds numbers that are NaN or infinite; the model is broken."
            )
        out_rows[start : start + step] = _encode(part, form, name).view(len(part), -1)
    return out


def _encode(rows: Tensor, form: Kind, name: str) -> Tensor:
    """Finite rows as bytes."""
    if form.dtype is not None:
        plain = rows.to(form.dtype).contiguous()
        if not bool(torch.isfinite(plain).all()):
            _refuse_too_large(rows, form, name)
        return plain.view(torch.uint8)
    blocks = rows.float().reshape(-1, form.block_size)
    coded = _WRITERS[form.name](blocks)
    scales = coded[:, : 4 if form.name == "Q4_1" else 2].contiguous().view(torch.float16)
    if not bool(torch.isfinite(scales).all()):
        _refuse_too_large(rows, form, name)
    return coded


def _refuse_too_large(rows: Tensor, form: Kind, name: str) -> None:
    raise CheckpointError(
        f"{name} holds {float(rows.abs().max()):g}, too large for {form.name}.",
        hint="Write bf16 or f32.",
    )


def _check_size(data: Tensor, form: Kind, shape: Sequence[int]) -> None:
    wanted = form.block_bytes
    for length in shape:
        wanted *= length
    if not shape or shape[-1] % form.block_size or data.numel() * form.block_size != wanted:
        raise CheckpointError(
            f"{data.numel()} bytes of {form.name} are no tensor of the shape {list(shape)}."
        )

"""Is every tensor of a written checkpoint what it was to be, to the bit?

Both files are read one tensor at a time by llamita's own readers. What a narrower format should
hold is worked out anew from the source: rounded, or quantized and read back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from llamita.formats.checkpoint import EMBEDDING, HEAD
from llamita.formats.stored import StoredTensor
from llamita.quantization.blocks import dequantize, quantize
from llamita.shipping.precision import BLOCK_LENGTH, BLOCKS, DTYPES, block_kind

_NUMBERS_AT_ONCE = 2**22
_MOST_SHOWN = 5
_BIT_TYPES = {4: torch.int32, 8: torch.int64}


def expected_tensors(
    source: Mapping[str, StoredTensor],
    written: Mapping[str, StoredTensor],
    quantization: str | None,
    differences: list[str],
    notes: list[str],
) -> dict[str, StoredTensor]:
    """The source's tensors as they should come back, by name; those in both files.

    A tensor that the format could not hold as asked (its rows do not fill blocks), or that became
    wider (it was joined with finer ones), is a note; one that is stored otherwise without a reason,
    or that is missing, a difference.
    """
    for name in sorted(source.keys() ^ written.keys()):
        differences.append(f"{name} is only in the {'source' if name in source else 'result'}.")
    expected, fallen, widened = {}, [], []
    head = HEAD if HEAD in source else EMBEDDING
    for name, tensor in source.items():
        if name not in written:
            continue
        found = written[name]
        expected[name] = _as_stored(tensor, found)
        if _is_stored_as_asked(tensor, found, quantization):
            continue
        kind = block_kind(found)
        if quantization in BLOCKS and tensor.shape[-1] % BLOCK_LENGTH and kind is None:
            fallen.append((name, found))
        elif quantization in ("q4_0", "q4_1") and name == head and kind == "q8_0":
            notes.append(
                f"{name} is stored as {found.kind}, finer than the rest: it makes the logits."
            )
        elif quantization is None and kind is None and is_lossless(tensor, found):
            widened.append((name, found.kind, tensor.kind))
        else:
            asked = quantization or tensor.kind
            differences.append(f"{name} is stored as {found.kind}, where {asked} was asked.")
    if fallen:
        name, found = fallen[0]
        more = f" and {len(fallen) - 1} more are" if len(fallen) > 1 else " is"
        notes.append(
            f"{name}{more} stored as {found.kind}: rows of {found.shape[-1]} numbers do not fill "
            f"blocks of {BLOCK_LENGTH}, which {quantization} needs."
        )
    if widened:
        name, stored, own = widened[0]
        more = f" and {len(widened) - 1} more are" if len(widened) > 1 else " is"
        notes.append(f"{name}{more} stored as {stored}, which holds their {own} without loss.")
    return expected


def is_lossless(source: StoredTensor, found: StoredTensor) -> bool:
    """Whether every number of `source` fits into `found` as it is."""
    if block_kind(found) is not None:
        return source.blocks is not None and block_kind(found) == block_kind(source)
    return torch.promote_types(source.dtype, found.dtype) == found.dtype


def compare_tensors(
    expected: Mapping[str, StoredTensor],
    written: Mapping[str, StoredTensor],
    differences: list[str],
) -> int:
    """How many tensors were compared; those that are not equal to the bit are named."""
    wrong = []
    for name, tensor in expected.items():
        gap = _difference(tensor.read(), written[name].read())
        if gap is not None:
            wrong.append(f"{name} ({gap})")
    if wrong:
        more = f" and {len(wrong) - _MOST_SHOWN} more" if len(wrong) > _MOST_SHOWN else ""
        differences.append(
            f"{len(wrong)} of {len(expected)} tensors read back are not what was to be written: "
            f"{', '.join(wrong[:_MOST_SHOWN])}{more}."
        )
    return len(expected)


def _is_stored_as_asked(
    source: StoredTensor, found: StoredTensor, quantization: str | None
) -> bool:
    kind = block_kind(found)
    if quantization in BLOCKS and len(source.shape) > 1:
        return kind == quantization
    if quantization is None and kind is not None:
        return kind == block_kind(source)
    dtype = DTYPES.get(quantization or "", source.dtype)
    if quantization in BLOCKS and dtype == torch.float64:
        dtype = torch.float32  # vectors, which are no blocks
    # Wider loses nothing: GGUF keeps vectors in float32.
    return kind is None and (
        found.dtype == dtype
        or (len(source.shape) < 2 and torch.promote_types(found.dtype, dtype) == found.dtype)
    )


def _as_stored(tensor: StoredTensor, found: StoredTensor) -> StoredTensor:
    """What `tensor` becomes in the form of `found`; blocks of the same form are taken over."""
    kind = block_kind(found)
    if kind is None:
        return replace(tensor, dtype=found.dtype, read=lambda: tensor.read().to(found.dtype))
    if tensor.blocks is not None and kind == block_kind(tensor):
        return tensor
    return replace(tensor, dtype=torch.float32, read=_requantized(tensor, kind))


def _requantized(tensor: StoredTensor, kind: str) -> Callable[[], Tensor]:
    def read() -> Tensor:
        numbers = tensor.read().float()
        return dequantize(quantize(numbers, kind.upper()), kind.upper(), numbers.shape)

    return read


def _difference(expected: Tensor, found: Tensor) -> str | None:
    """Where two tensors part, as words; None where every bit is equal."""
    if expected.shape != found.shape:
        return f"shape {list(found.shape)} where {list(expected.shape)} was written"
    unequal, gap = 0, 0.0
    pairs = zip(
        torch.split(expected.reshape(-1), _NUMBERS_AT_ONCE),
        torch.split(found.reshape(-1), _NUMBERS_AT_ONCE),
        strict=True,
    )
    wide = torch.promote_types(torch.promote_types(expected.dtype, found.dtype), torch.float32)
    bits = _BIT_TYPES[wide.itemsize]
    for left, right in pairs:
        left, right = left.to(wide), right.to(wide)
        others = left.view(bits) != right.view(bits)
        count = int(others.sum())
        if count:
            unequal += count
            gap = max(gap, float((left - right).abs().nan_to_num(torch.inf).max()))
    return f"{unequal:,} of {expected.numel():,} numbers, by up to {gap:.3g}" if unequal else None

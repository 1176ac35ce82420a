"""Damage that understands a file's structure, by what kind of file it is."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz import json_parts
from tests.fuzz.gguf_parts import ARRAY, STRING, Entry, GGUFParts
from tests.fuzz.pickle_parts import spoil_archive, spoil_sequence
from tests.fuzz.protobuf_parts import spoil_model
from tests.fuzz.raw import NUMBERS

Spoil = Callable[[random.Random, bytes], bytes]


def structured_for(path: Path, data: bytes) -> Spoil:
    """The structured damage that fits a file, told by its content."""
    if data[:4] == b"GGUF":
        return spoil_gguf
    if data[:4] == b"PK\x03\x04":
        return spoil_archive
    if path.suffix == ".safetensors":
        return spoil_safetensors
    if path.suffix == ".json":
        return spoil_json
    if path.suffix in (".pt", ".pth", ".bin"):
        return spoil_sequence
    return spoil_lines if data[:40].isascii() and b"=" in data[:40] else spoil_model


def spoil_json(draw: random.Random, data: bytes) -> bytes:
    return json_parts.dumps(draw, json_parts.spoil(draw, json.loads(data)))


def spoil_safetensors(draw: random.Random, data: bytes) -> bytes:
    """The header's claims: its length, and the name, dtype, shape and place of tensors."""
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    name = draw.choice(names)
    entry = header[name]
    action = draw.randrange(9)
    if action == 0:
        header = json_parts.spoil(draw, header)
    elif action == 1:
        at = draw.randrange(2)
        change = (*NUMBERS, entry["data_offsets"][at] + 4, entry["data_offsets"][at] - 4)
        entry["data_offsets"][at] = draw.choice(change)
    elif action == 2:
        shape = entry["shape"]
        at = draw.randrange(len(shape))
        shape[at] = draw.choice((*NUMBERS, shape[at] + 1, shape[at] * 2, -1, 0.5, None))
    elif action == 3:
        entry["dtype"] = draw.choice(("F64", "F16", "BF16", "I8", "F8_E4M3", "X", "BOOL", 5, None))
    elif action == 4:
        other = draw.choice(names)
        header[name]["data_offsets"], header[other]["data_offsets"] = (
            header[other]["data_offsets"],
            header[name]["data_offsets"],
        )
    elif action == 5:
        odd = ("", "__metadata__", "model.layers.99.mlp.up_proj.weight", "\ud800", "x" * 9999)
        header[draw.choice((*odd, f"module.{name}"))] = header.pop(name)
    elif action == 6:
        header[draw.choice(("copy", "lm_head.weight"))] = copy.deepcopy(entry)
    elif action == 7:
        body = draw.choice((body[:-1], body + b"\0", body[: len(body) // 2], b"", body * 2))
    text = json_parts.dumps(draw, header)
    claimed = draw.choice((*NUMBERS, len(text) - 1)) if action == 8 else len(text)
    return (claimed % 2**64).to_bytes(8, "little") + text + body


def spoil_gguf(draw: random.Random, data: bytes) -> bytes:
    """Counts, types, lengths, keys, values, shapes, offsets."""
    parts = GGUFParts.parse(data)
    entry = draw.choice(parts.entries)
    tensor = draw.choice(parts.tensors)
    action = draw.randrange(14)
    if action == 0:
        parts.entry_count = draw.choice((*NUMBERS, len(parts.entries) - 1))
    elif action == 1:
        parts.tensor_count = draw.choice((*NUMBERS, len(parts.tensors) - 1))
    elif action == 2:
        parts.string_lengths[draw.randrange(1, 60)] = draw.choice((*NUMBERS, 3, 99))
    elif action in (3, 4, 5):
        _spoil_value(draw, entry)
    elif action == 6:
        entry.kind = draw.randrange(14)
    elif action == 7:
        entry.key = draw.choice(
            (b"", b"general.alignment", b"\xff", entry.key + b"x", b"a" * 70_000)
        )
    elif action == 8:
        parts.entries.append(entry) if draw.random() < 0.4 else parts.entries.remove(entry)
    elif action == 9:
        at = draw.randrange(len(tensor.dims))
        tensor.dims[at] = draw.choice((*NUMBERS, tensor.dims[at] * 2, tensor.dims[at] + 1))
    elif action == 10:
        tensor.kind = draw.choice((*range(40), 2**31))
    elif action == 11:
        tensor.offset = draw.choice((*NUMBERS, 32, 64, 31, 2**40))
    elif action == 12:
        odd = (
            b"",
            b"output.weight",
            b"\xff",
            b"blk.99.attn_q.weight",
            b"x" * 65,
            b"rope_freqs.weight",
        )
        tensor.name = draw.choice((*odd, draw.choice(parts.tensors).name))
    else:
        change = draw.randrange(4)
        if change == 0:
            parts.version = draw.choice((0, 1, 2, 3, 4, 2**24 * 3, 2**32 - 1))
        elif change == 1:
            tensor.claimed_dims = draw.choice((0, 1, 4, 5, 2**32 - 1))
        elif change == 2:
            tensor.data = tensor.data[: draw.randrange(len(tensor.data))]
        else:
            parts.tensors.remove(tensor)
    return parts.build()


def _spoil_value(draw: random.Random, entry: Entry) -> None:
    if entry.kind == ARRAY:
        action = draw.randrange(4)
        if action == 0:
            entry.claimed = draw.choice((*NUMBERS, len(entry.value) - 1))
        elif action == 1:
            entry.inner = draw.randrange(14)
        elif action == 2:
            entry.value = draw.choice(([], entry.value[:-1], entry.value * 2, entry.value[::-1]))
        elif entry.value:
            at = draw.randrange(len(entry.value))
            entry.value[at] = _odd_value(draw, entry.inner, draw.choice(entry.value))
    else:
        entry.value = _odd_value(draw, entry.kind, entry.value)


def _odd_value(draw: random.Random, kind: int, value: Any) -> Any:
    if kind == STRING:
        texts = [text.encode("utf-8", "surrogatepass") for text in json_parts.ODD_TEXTS]
        return draw.choice((*texts, b"\xff\xfe", value))
    if kind in (6, 12):
        return draw.choice((0.0, -1.0, float("nan"), float("inf"), 1e30, 1e-30))
    return draw.choice((*NUMBERS, 0, 1, 2, 3, 5, 300, 10**9))


def spoil_lines(draw: random.Random, data: bytes) -> bytes:
    """A text file of tokens and ranks."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    token, _, rank = lines[at].partition(b" ")
    odd_ranks = (b"", b"-1", b"x", b"99999999999", b"0", b"1e3", b"5" * 5000, "٣".encode())
    odd_tokens = (b"", b"!", b"====", b"QQ", b"Q" * 9999, "é".encode(), b"\0")
    lines[at : at + 1] = draw.choice(
        (
            [token + b" " + draw.choice(odd_ranks)],
            [draw.choice(odd_tokens) + b" " + rank],
            [lines[at]] * draw.choice((2, 1000)),
            [],
            [b""],
            [lines[at] + b" 5"],
        )
    )
    return b"\n".join(lines)

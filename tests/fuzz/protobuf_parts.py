"""Damage to SentencePiece models: fields, lengths and numbers of the protobuf message."""

from __future__ import annotations

import random
import struct

from tests.fuzz.raw import NUMBERS

Field = tuple[int, int, bytes]
"""Number, wire type, and the content (of a varint, its bytes)."""


def spoil_model(draw: random.Random, data: bytes) -> bytes:
    """A model with one to three fields changed, at the top or inside one."""
    fields = parse(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        at = draw.choice((draw.randrange(len(fields)), len(fields) - 1 - draw.randrange(2)))
        number, wire, content = fields[at]
        action = draw.randrange(6)
        if wire == 2 and action < 4:
            inner = parse(content)
            if inner:
                within = draw.randrange(len(inner))
                inner[within] = _other(draw, inner[within])
                fields[at] = (number, wire, build(inner))
        elif action == 4:
            fields.insert(draw.randrange(len(fields)), fields[at])
        else:
            del fields[at]
    spoiled = build(fields)
    if draw.random() < 0.1:  # a length that is not its content's
        number, wire, content = draw.choice(fields)
        lie = varint(number << 3 | wire) + varint(draw.choice(NUMBERS)) + content
        spoiled = lie + spoiled if draw.random() < 0.5 else spoiled + lie
    return spoiled


def _other(draw: random.Random, field: Field) -> Field:
    number, wire, content = field
    action = draw.randrange(5)
    if action == 0:
        return draw.choice((0, 1, 2, 3, 4, 5, 35, 40, 41, 42, 100)), wire, content
    if wire == 0:
        return number, wire, varint(draw.choice((*NUMBERS, *range(7), 300, 999_999)))
    if wire == 5:
        value = draw.choice((0.0, float("nan"), float("inf"), -1e38, 1e38, -0.0))
        return number, wire, struct.pack("<f", value)
    if wire == 2:
        texts = (b"", b"\xff\xfe", b"a" * 5000, b"<0x41>", b"\0", content * 2, content[:-1], b"\n")
        return number, wire, draw.choice(texts)
    return field


def parse(data: bytes) -> list[Field]:
    """The fields of a message; what is none any more comes as the last one's content."""
    fields: list[Field] = []
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            start = position
            _, position = _read_varint(data, position)
        elif wire == 2:
            length, start = _read_varint(data, position)
            position = start + length
        else:
            start = position
            position += 8 if wire == 1 else 4
        fields.append((number, wire, data[start:position]))
    return fields


def build(fields: list[Field]) -> bytes:
    data = b""
    for number, wire, content in fields:
        data += varint(number << 3 | wire)
        data += (varint(len(content)) if wire == 2 else b"") + content
    return data


def varint(value: int) -> bytes:
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        value |= (byte & 127) << shift
        shift, position = shift + 7, position + 1
        if byte < 128:
            break
    return value, position

"""Damage to PyTorch's files: steps of the pickle, fields of the archive around it."""

from __future__ import annotations

import io
import pickletools
import random
import struct
import zipfile
import zlib
from itertools import pairwise

from tests.fuzz.raw import NUMBERS, RAW

_GLOBALS = (
    *("os system", "builtins eval", "builtins bytearray", "builtins getattr", "pathlib Path"),
    *(
        "torch FloatTensor",
        "torch.storage UntypedStorage",
        "torch HalfStorage",
        "torch QInt8Storage",
    ),
    *(
        "torch._utils _rebuild_tensor",
        "torch._utils _rebuild_tensor_v2",
        "torch Size",
        "torch device",
    ),
    *("torch._utils _rebuild_meta_tensor_no_storage", "torch._utils _rebuild_parameter"),
    *("torch._utils _rebuild_sparse_tensor", "collections OrderedDict", "collections Counter"),
    *("torch._tensor _rebuild_from_type_v2", "_codecs encode", "torch bfloat16", "torch float64"),
)
_STEPS = b"()]}.012QRabdehjlNtuus\x85\x86\x87\x88\x89\x8f\x90\x91\x94"


def spoil_pickle(draw: random.Random, data: bytes) -> bytes:
    """The pickles that follow one another in `data`, with one to three steps changed."""
    steps = _steps(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        at = draw.randrange(len(steps))
        action = draw.randrange(8)
        if action < 3:
            steps[at] = _other_argument(draw, steps[at])
        elif action == 3:
            steps[at] = b""
        elif action == 4:
            steps[at] *= draw.choice((2, 3, 1000))
        elif action == 5:
            other = draw.randrange(len(steps))
            steps[at], steps[other] = steps[other], steps[at]
        elif action == 6:
            steps[at] += bytes([draw.choice(_STEPS)])
        else:
            wanted = draw.choice((b"K", b"J", b"M", b"c", b"X"))
            fitting = [i for i, step in enumerate(steps) if step[:1] == wanted]
            if fitting:
                at = draw.choice(fitting)
                steps[at] = _other_argument(draw, steps[at])
    return b"".join(steps)


def _steps(data: bytes) -> list[bytes]:
    """The bytes of each step of all pickles that begin at the front of `data`, and the rest."""
    stream, starts = io.BytesIO(data), []
    try:
        while stream.tell() < len(data):
            base = stream.tell()
            found = [position for _, _, position in pickletools.genops(stream)]
            starts += found
            if data[base : base + 1] != b"\x80":
                break
    except ValueError:
        pass
    bounds = [*starts, stream.tell() if starts else 0, len(data)]
    bounds = sorted({0, *bounds})
    return [data[a:b] for a, b in pairwise(bounds)]


def _other_argument(draw: random.Random, step: bytes) -> bytes:
    code = step[:1]
    if code in (b"K", b"M", b"J", b"\x8a"):
        value = draw.choice((*NUMBERS, -1, -(2**40), 2**511, draw.randrange(1000)))
        if draw.random() < 0.5 and -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw
    if code == b"c":
        return b"c" + draw.choice(_GLOBALS).replace(" ", "\n").encode() + b"\n"
    if code == b"X":
        text = draw.choice((b"", b"\xff", b"0", b"storage", b"x" * 70_000, b"99", b"\n", b"../0"))
        length = draw.choice((len(text), len(text), 2**31, 2**32 - 1, 5))
        return b"X" + struct.pack("<I", length) + text
    if code in (b"q", b"h"):
        return code + bytes([draw.randrange(256)])
    if code in (b"r", b"j"):
        return code + struct.pack("<I", draw.choice((0, 1000, 2**31, 2**32 - 1)))
    if code == b"G":
        return b"G" + struct.pack(">d", draw.choice((0.0, -1.0, 1e308, float("nan"), 0.5)))
    return bytes([draw.choice(_STEPS)])


def spoil_archive(draw: random.Random, data: bytes) -> bytes:
    """A zip archive with one of its records, or a field of its directory, changed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        records = [(name, archive.read(name)) for name in archive.namelist()]
    at = next(i for i, (name, _) in enumerate(records) if name.endswith("data.pkl"))
    action = draw.randrange(10)
    if action < 5:
        records[at] = (records[at][0], spoil_pickle(draw, records[at][1]))
        return build_archive(records)
    if action == 5:
        other = draw.randrange(len(records))
        name, content = records[other]
        change = draw.randrange(5)
        if change == 0:
            del records[other]
        elif change == 1:
            records.append(records[other])
        elif change == 2:
            odd = ("", "../x", "archive/data/0", "model/data.pkl", "x" * 999, "é\n")
            records[other] = (draw.choice(odd), content)
        else:
            records[other] = (name, draw.choice((b"", content[:-1], content + b"\0", content * 2)))
        return build_archive(records)
    if action == 6:
        return build_archive(records, compressed=draw.choice(records)[0])
    return _spoil_fields(draw, data)


def _spoil_fields(draw: random.Random, data: bytes) -> bytes:
    """A field of a central directory entry, of its end or of a local header."""
    signature, fields = draw.choice(
        (
            (
                b"PK\x01\x02",
                ((8, 2), (10, 2), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)),
            ),
            (b"PK\x05\x06", ((8, 2), (10, 2), (12, 4), (16, 4), (20, 2))),
            (b"PK\x03\x04", ((26, 2), (28, 2), (0, 4))),
            (b"PK\x06\x06", ((24, 8), (32, 8), (40, 8), (48, 8))),
            (b"PK\x06\x07", ((8, 8),)),
        )
    )
    places = []
    position = data.find(signature)
    while position >= 0:
        places.append(position)
        position = data.find(signature, position + 1)
    if not places:
        return draw.choice(RAW)(draw, data)
    offset, width = draw.choice(fields)
    start = draw.choice(places) + offset
    old = int.from_bytes(data[start : start + width], "little")
    value = draw.choice((*NUMBERS, old + 1, max(old - 1, 0), old * 2)) % (1 << 8 * width)
    return data[:start] + value.to_bytes(width, "little") + data[start + width :]


def build_archive(records: list[tuple[str, bytes]], compressed: str | None = None) -> bytes:
    """A zip archive in which names may repeat; one record may be compressed."""
    body, directory = b"", b""
    for name, content in records:
        packed, method = content, 0
        if name == compressed:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            packed, method = packer.compress(content) + packer.flush(), 8
        encoded = name.encode("utf-8", "surrogateescape")
        common = struct.pack(
            "<HHHHIIIHH",
            *(0, method, 0, 0, zlib.crc32(content), len(packed), len(content), len(encoded), 0),
        )
        directory += b"PK\x01\x02\x14\x00\x14\x00" + common
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + encoded
        body += b"PK\x03\x04\x14\x00" + common + encoded + packed
    end = struct.pack("<HHHHIIH", 0, 0, len(records), len(records), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def spoil_sequence(draw: random.Random, data: bytes) -> bytes:
    """A file of before PyTorch 1.6: a step of its pickles, or the size of a storage."""
    steps = _steps(data)
    if draw.random() < 0.7:
        head = b"".join(steps[:-1])
        return spoil_pickle(draw, head) + steps[-1]
    value = draw.choice(NUMBERS)
    rest = value.to_bytes(8, "little") + steps[-1][8:]
    return b"".join(steps[:-1]) + draw.choice((rest, steps[-1][: draw.randrange(9)], b""))

"""Headers of GGUF files: what is sound is read, what is not gets one error that says where."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from llamita.errors import CheckpointError
from llamita.formats.gguf_header import read_gguf_header

UINT32, STRING, ARRAY = 4, 8, 9


def text(value: str | bytes) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(encoded)) + encoded


def tensor(
    name: str | bytes = "w",
    shape: tuple[int, ...] = (32, 2),
    kind: int = 0,
    offset: int = 0,
) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


def file(
    keys: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    version: int = 3,
    data: int = 256,
    tensor_count: int | None = None,
    key_count: int | None = None,
) -> bytes:
    keys, tensors = keys or [], [tensor()] if tensors is None else tensors
    head = b"GGUF" + struct.pack("<I", version)
    head += struct.pack("<Q", len(tensors) if tensor_count is None else tensor_count)
    head += struct.pack("<Q", len(keys) if key_count is None else key_count)
    head += b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data)


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


HUGE = 1 << 62
BROKEN: dict[str, tuple[bytes, str]] = {
    "not-gguf": (b"GGML" + bytes(60), "does not begin with GGUF"),
    "too-short": (b"GG", "too short"),
    "preamble-cut": (file()[:8], "would take 8 bytes where 0 are left"),
    "version-1": (file(version=1), "GGUF version 1; read are 2 and 3"),
    "version-from-the-future": (file(version=77), "GGUF version 77"),
    "big-endian": (file(version=3 << 24), "big-endian"),
    "big-endian-magic": (b"FUGG" + file()[4:], "big-endian"),
    "tensor-count": (file(tensor_count=HUGE), f"claims {HUGE} tensors"),
    "key-count": (file(key_count=HUGE), f"claims {HUGE} keys"),
    "key-length": (file([struct.pack("<Q", HUGE)]), f"a key has {HUGE} bytes"),
    "key-no-utf8": (file([key("a", UINT32, bytes(4)).replace(b"a", b"\xff")]), "no UTF-8"),
    "key-twice": (file([key("a", UINT32, bytes(4))] * 2), "the key 'a' stands there twice"),
    "value-type": (file([key("a", 13, bytes(4))]), "a has the unknown type 13"),
    "truth-value": (file([key("a", 7, b"\x02")]), "a is 2 where a truth value"),
    "string-length": (file([key("a", STRING, struct.pack("<Q", 1 << 20))]), "would take 1048576"),
    "array-type": (file([key("a", ARRAY, struct.pack("<IQ", 99, 1))]), "unknown type 99"),
    "array-of-arrays": (
        file([key("a", ARRAY, struct.pack("<IQ", ARRAY, 1))]),
        "a is an array of arrays",
    ),
    "array-count": (file([key("a", ARRAY, struct.pack("<IQ", 10, HUGE))]), "numbers in a"),
    "array-count-wraps": (
        file([key("a", ARRAY, struct.pack("<IQ", 10, (1 << 61) + 1))]),
        "numbers in a",
    ),
    "texts-count": (file([key("a", ARRAY, struct.pack("<IQ", STRING, HUGE))]), "texts in a"),
    "texts-length": (
        file([key("a", ARRAY, struct.pack("<IQQ", STRING, 1, HUGE))]),
        f"a text in a would take {HUGE}",
    ),
    "texts-no-utf8": (
        file([key("a", ARRAY, struct.pack("<IQ", STRING, 2) + text("b") + text(b"\xff"))]),
        "text 1 in a is no UTF-8",
    ),
    "alignment": (file([key("general.alignment", UINT32, bytes(4))]), "general.alignment is 0"),
    "alignment-odd": (
        file([key("general.alignment", UINT32, struct.pack("<I", 24))]),
        "must be a power of two",
    ),
    "tensor-name": (file(tensors=[tensor("w" * 65)]), "a tensor's name has 65 bytes"),
    "tensor-twice": (file(tensors=[tensor(), tensor()]), "the tensor 'w' stands there twice"),
    "dimensions": (file(tensors=[tensor(shape=(1,) * 5)]), "w has 5 dimensions"),
    "no-dimensions": (file(tensors=[tensor(shape=())]), "w has 0 dimensions"),
    "empty-dimension": (file(tensors=[tensor(shape=(32, 0))]), "holds nothing or too much"),
    "shape-overflows": (
        file(tensors=[tensor(shape=(1 << 32, 1 << 32))]),
        "holds nothing or too much",
    ),
    "type": (file(tensors=[tensor(kind=1000)]), "w has the unknown type 1000"),
    "type-not-read": (file(tensors=[tensor(kind=20)]), "holds w as IQ4_NL, which is not read"),
    "rows": (file(tensors=[tensor(shape=(33,), kind=8)]), "rows of 33 numbers of Q8_0"),
    "offset": (file(tensors=[tensor(offset=4)]), "the offset 4 of w is no multiple of 32"),
    "offset-outside": (file(tensors=[tensor(offset=HUGE)]), "the file is not whole"),
    "cut": (file(data=255), "the file is not whole"),
    "overlap": (file(tensors=[tensor("a"), tensor("b", offset=32)], data=512), "a and b overlap"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_header_that_cannot_be_is_refused_and_says_what_is_wrong(
    name: str, tmp_path: Path
) -> None:
    content, problem = BROKEN[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_gguf_header(path)
    assert problem in caught.value.message
    assert str(path) in caught.value.message


def test_every_way_to_cut_a_file_short_is_one_error(tmp_path: Path) -> None:
    keys = [
        key("a", STRING, text("value")),
        key("b", ARRAY, struct.pack("<IQ", STRING, 2) + text("one") + text("two")),
        key("c", ARRAY, struct.pack("<IQ3I", UINT32, 3, 1, 2, 3)),
    ]
    whole = file(keys)
    path = tmp_path / "model.gguf"
    path.write_bytes(whole)
    header = read_gguf_header(path)
    assert header.metadata["a"] == "value"
    assert header.metadata["b"] == ["one", "two"]
    assert header.tensors["w"].shape == (2, 32)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_gguf_header(path)


def test_version_2_is_read_as_version_3(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file(version=2))
    assert read_gguf_header(path).version == 2


WRITERS: dict[str, tuple[Callable[[gguf.GGUFWriter, str], None], object]] = {
    "uint8": (lambda w, k: w.add_uint8(k, 200), 200),
    "int8": (lambda w, k: w.add_int8(k, -7), -7),
    "uint16": (lambda w, k: w.add_uint16(k, 65535), 65535),
    "int16": (lambda w, k: w.add_int16(k, -300), -300),
    "uint32": (lambda w, k: w.add_uint32(k, 2**32 - 1), 2**32 - 1),
    "int32": (lambda w, k: w.add_int32(k, -(2**31)), -(2**31)),
    "uint64": (lambda w, k: w.add_uint64(k, 2**64 - 1), 2**64 - 1),
    "int64": (lambda w, k: w.add_int64(k, -(2**63)), -(2**63)),
    "float32": (lambda w, k: w.add_float32(k, 1e-5), 1e-5),
    "float64": (lambda w, k: w.add_float64(k, 0.1), 0.1),
    "true": (lambda w, k: w.add_bool(k, True), True),
    "string": (lambda w, k: w.add_string(k, "Ժամ 🦙"), "Ժամ 🦙"),
    "texts": (lambda w, k: w.add_array(k, ["a", "", "ü"]), ["a", "", "ü"]),
}


def test_what_the_gguf_library_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name, (add, _) in WRITERS.items():
        add(writer, name)
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("floats", [0.5, -2.0])
    numbers = np.arange(96, dtype=np.float32).reshape(3, 32)
    writer.add_tensor("plain", numbers)
    writer.add_tensor("half", numbers.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_gguf_header(path)
    for name, (_, value) in WRITERS.items():
        assert header.metadata[name] == value, name
        assert type(header.metadata[name]) is type(value), name
    assert np.array_equal(header.metadata["numbers"], [1, -2, 3])
    assert np.array_equal(header.metadata["floats"], [0.5, -2.0])
    info = header.tensors["half"]
    assert (info.shape, info.kind.name) == ((3, 32), "F16")
    assert header.bytes_of(info).numpy().tobytes() == numbers.astype(np.float16).tobytes()


def test_writing_into_a_tensor_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file())
    before = path.read_bytes()
    header = read_gguf_header(path)
    header.bytes_of(header.tensors["w"]).fill_(1)
    assert path.read_bytes() == before

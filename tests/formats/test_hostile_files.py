"""Safetensors, GGUF, configs and paths that ask for memory, time or harm: one error each."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llamita.config import ModelConfig
from llamita.errors import LlamitaError
from llamita.formats.checkpoint import Checkpoint
from llamita.formats.detect import load_checkpoint
from llamita.formats.gguf_write import write_gguf
from llamita.formats.huggingface import save_model_directory
from llamita.formats.safetensors_file import read_safetensors
from llamita.formats.stored import StoredTensor
from llamita.model.transformer import Transformer
from tests.fuzz.gguf_parts import ARRAY, STRING, Entry, GGUFParts, Tensor

CONFIG = ModelConfig(40, 16, 24, 1, 2, max_position_embeddings=32)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model_directory(Transformer(CONFIG).initialize(0), tmp_path / "model")
    return tmp_path / "model"


def refused(path: Path, words: str, name: str | None = None) -> None:
    with pytest.raises(LlamitaError, match=words) as error:
        load_checkpoint(path)
    assert (name or path.name) in error.value.message
    assert len(error.value.message) < 2500


def message_of(path: Path) -> str:
    """What is said against a model; nothing where it is read."""
    try:
        load_checkpoint(path)
    except LlamitaError as error:
        return error.message
    return ""


# Safetensors


def entry(shape: list[Any], offsets: list[Any], dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def safetensors(path: Path, header: Any, data: bytes = bytes(32), length: int = -1) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length < 0 else length) + text + data)
    return path


def test_the_sound_form_of_a_safetensors_file_is_read(tmp_path: Path) -> None:
    header = {"a": entry([4], [0, 16]), "b": entry([2, 2], [16, 32])}
    tensors = read_safetensors(safetensors(tmp_path / "m.safetensors", header))
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == {"a": [4], "b": [2, 2]}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"a": entry([4], [0, 16]), "b": entry([4], [8, 24])}, "overlaps"),
        ({"a": entry([4], [0, 16]), "b": entry([4], [0, 16])}, "overlaps"),
        ({"a": entry([4], [0, 16])}, "32 follow its header"),
        ({"a": entry([4], [0, 16]), "b": entry([3], [20, 32])}, "after a hole"),
        ({"a": entry([4], [0, 16]), "b": entry([2**62], [16, 2**64 + 16])}, "bytes, and 32 follow"),
        ({"a": entry([2**32, 2**32], [0, 32])}, "of shape"),
        ({"a": entry([-4, -2], [0, 32])}, "the shape"),
        ({"a": entry([8.0], [0, 32])}, "the shape"),
        ({"a": entry([True, 8], [0, 32])}, "the shape"),
        ({"a": entry([1] * 1000 + [8], [0, 32])}, "the shape"),
        ({"a": entry([8], [0])}, "data_offsets"),
        ({"a": entry([8], [32, 0])}, "data_offsets"),
        ({"a": entry([8], [0, 32], "F99")}, "dtype 'F99'"),
        ({"a": entry([8], [0, 32], ["F32"])}, "dtype"),
        ({"a": [1]}, "lacks dtype"),
        ({"a": entry([8], [0, 32]), "__metadata__": {"x": 1}}, "__metadata__"),
        (
            b'{"a": {"dtype": "F32", "dtype": "F64", "shape": [4], "data_offsets": [0, 32]}}',
            "twice",
        ),
        (b'{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "deep|recursion"),
        (b"[]", "no JSON object"),
        (b"\xff\xfe", "JSON"),
    ],
)
def test_a_safetensors_header_that_lies_is_refused(header: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(LlamitaError, match=words) as error:
        read_safetensors(safetensors(tmp_path / "m.safetensors", header))
    assert "m.safetensors" in error.value.message


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 10**9, 41, 3])
def test_a_safetensors_header_length_that_lies_is_refused(length: int, tmp_path: Path) -> None:
    path = safetensors(tmp_path / "m.safetensors", {}, length=length)
    with pytest.raises(LlamitaError, match=r"m\.safetensors"):
        read_safetensors(path)


# GGUF


@pytest.fixture
def gguf(tmp_path: Path) -> tuple[Path, GGUFParts]:
    state = Transformer(CONFIG).initialize(0).state_dict()
    del state["lm_head.weight"]
    tensors = {name: StoredTensor.of(tensor) for name, tensor in state.items()}
    path = tmp_path / "model.gguf"
    write_gguf(Checkpoint(CONFIG, tensors, path), None, path)
    parts = GGUFParts.parse(path.read_bytes())
    path.write_bytes(parts.build())
    load_checkpoint(path)
    return path, parts


def test_gguf_counts_of_two_to_the_63_are_refused(gguf: tuple[Path, GGUFParts]) -> None:
    path, parts = gguf
    for field in ("tensor_count", "entry_count"):
        for count in (2**63, 2**64 - 1, 2**32, 100_000):
            setattr(parts, field, count)
            path.write_bytes(parts.build())
            refused(path, "claims")
        setattr(parts, field, None)


def test_gguf_texts_and_arrays_longer_than_the_file_are_refused(
    gguf: tuple[Path, GGUFParts],
) -> None:
    path, parts = gguf
    for length in (2**63, 2**64 - 1, 2**31):
        parts.string_lengths = {1: length}
        path.write_bytes(parts.build())
        refused(path, "bytes")
    parts.string_lengths = {}
    for inner in (0, 4, STRING, 12):
        for length in (2**63, 2**64 - 1, 10**7):
            array = Entry(b"tokenizer.ggml.scores", ARRAY, [], inner, length)
            parts.entries.append(array)
            path.write_bytes(parts.build())
            refused(path, "claims")
            parts.entries.remove(array)


def test_gguf_arrays_of_arrays_are_refused(gguf: tuple[Path, GGUFParts]) -> None:
    path, parts = gguf
    parts.entries.append(Entry(b"deep", ARRAY, [b"\x09\0\0\0"] * 3, ARRAY, 2**40))
    path.write_bytes(parts.build())
    refused(path, "array of arrays")


@pytest.mark.parametrize("offset", [2**40, 2**63, 2**64 - 32, 33])
def test_a_gguf_tensor_past_the_end_or_between_two_places_is_refused(
    offset: int, gguf: tuple[Path, GGUFParts]
) -> None:
    path, parts = gguf
    parts.tensors[-1].offset = offset
    path.write_bytes(parts.build())
    refused(path, "not whole|no multiple")


def test_gguf_tensors_that_overlap_are_refused(gguf: tuple[Path, GGUFParts]) -> None:
    path, parts = gguf
    parts.tensors[1].offset = 0
    path.write_bytes(parts.build())
    refused(path, "overlap")


@pytest.mark.parametrize("dims", [[2**32, 2**32], [2**63], [0], [2**62, 8]])
def test_gguf_shapes_beyond_counting_are_refused(
    dims: list[int], gguf: tuple[Path, GGUFParts]
) -> None:
    path, parts = gguf
    parts.tensors[0].dims = dims
    path.write_bytes(parts.build())
    refused(path, "shape|whole")


def test_gguf_names_that_stand_twice_are_refused(gguf: tuple[Path, GGUFParts]) -> None:
    path, parts = gguf
    parts.entries.append(parts.entries[0])
    path.write_bytes(parts.build())
    refused(path, "twice")
    parts.entries.pop()
    parts.tensors.append(Tensor(parts.tensors[0].name, [8], 0, bytes(32)))
    path.write_bytes(parts.build())
    refused(path, "twice")


@pytest.mark.parametrize("alignment", [0, 3, 2**31])
def test_a_gguf_alignment_that_cannot_be_is_refused(
    alignment: int, gguf: tuple[Path, GGUFParts]
) -> None:
    path, parts = gguf
    parts.entries.append(Entry(b"general.alignment", 4, alignment))
    path.write_bytes(parts.build())
    refused(path, "alignment")


# Configs


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 10**9),
        ("head_dim", 2**31 - 2),
        ("hidden_size", 2**31 - 2),
        ("vocab_size", 2**31 - 1),
        ("intermediate_size", 2**31 - 1),
        ("num_attention_heads", 2**30),
        ("rope_theta", 10**200),
        ("rms_norm_eps", 10**99),
        ("max_position_embeddings", 2**40),
        ("eos_token_id", [[[]]]),
        ("eos_token_id", list(range(10**5))),
        ("layer_types", ["full_attention"] * 10**5),
        ("rope_scaling", {"rope_type": "yarn", "factor": 1e300}),
        ("architectures", {"a": 1}),
        ("architectures", 5),
        ("model_type", ["llama"]),
        ("model_type", "a\n\x1b[2J" * 10**5),
        ("rope_parameters", [1]),
    ],
)
def test_a_config_of_a_monstrous_model_is_refused_before_it_is_laid_out(
    field: str, value: Any, saved: Path
) -> None:
    content = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**content, field: value}))
    with little_memory():
        message = message_of(saved)
    assert len(message) < 2500
    assert message.isprintable()
    assert message or field in ("rope_theta", "rms_norm_eps", "rope_scaling")


@contextmanager
def little_memory() -> Iterator[None]:
    """Where the system can say so, one gigabyte more at most."""
    resource = pytest.importorskip("resource")
    statm = Path("/proc/self/statm")
    if not statm.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = int(statm.read_text().split()[0]) * resource.getpagesize() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_json_that_is_a_bomb_is_refused(name: str, saved: Path) -> None:
    for content in ("[" * 10**6, '{"a":' * 10**5, '{"a": 1' + "0" * 10**6 + "}", " " * 17_000_000):
        (saved / name).write_text(content)
        refused(saved, name, name)


# Paths


def test_a_loop_of_links_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    refused(tmp_path / "a", "nothing at|cannot read")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "generation_config.json", "tokenizer.json"]
)
def test_a_pipe_in_place_of_a_file_is_never_waited_for(name: str, saved: Path) -> None:
    (saved / name).unlink(missing_ok=True)
    os.mkfifo(saved / name)
    message = message_of(saved)
    assert saved.name in message or (name == "tokenizer.json" and not message)


def test_pipes_sockets_and_devices_are_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "a device or a pipe")
    refused(Path("/dev/zero"), "a device or a pipe", "zero")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # a socket's path has little room
        listener.bind("socket")
        refused(tmp_path / "socket", "a device or a pipe")


def test_a_name_that_no_file_can_have_is_one_error(tmp_path: Path) -> None:
    refused(tmp_path / ("x" * 5000), "cannot read|nothing at", "x")
    refused(Path("a\0b"), "cannot read|nothing at", "a")

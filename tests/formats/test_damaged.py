"""Damaged checkpoints give one clear error each, never a crash."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from llamita.config import ModelConfig
from llamita.errors import CheckpointError, LlamitaError
from llamita.formats.checkpoint import build_model
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.formats.safetensors_file import write_safetensors
from llamita.formats.stored import StoredTensor
from llamita.model.transformer import Transformer


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    config = ModelConfig(40, 16, 24, 1, 2, max_position_embeddings=32)
    save_model_directory(Transformer(config).initialize(0), tmp_path / "model")
    return tmp_path / "model"


def weights(saved: Path) -> Path:
    return saved / "model.safetensors"


@pytest.mark.parametrize("size", [0, 4, 8, 100, 2000, -1])
def test_a_truncated_file_is_named(size: int, saved: Path) -> None:
    weights(saved).write_bytes(weights(saved).read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load_checkpoint(saved)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 64,
        (2**62).to_bytes(8, "little") + b"{}",
        (4).to_bytes(8, "little") + b"[1,2]",
        b"<html>404: not found</html>" * 5,
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    ],
)
def test_a_file_of_something_else_is_named(content: bytes, saved: Path) -> None:
    weights(saved).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load_checkpoint(saved)


@pytest.mark.parametrize("offsets", [[0, 10], [-4, 60], [0, 10**12], [64, 0], [4, 68]])
def test_offsets_that_do_not_fit_are_refused(offsets: list[int], saved: Path) -> None:
    data = weights(saved).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["model.norm.weight"]["data_offsets"] = offsets
    text = json.dumps(header).encode()
    weights(saved).write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(CheckpointError):
        load_checkpoint(saved)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(position=st.integers(0, 900), value=st.integers(0, 255))
def test_any_changed_byte_of_the_header_is_an_error_or_a_whole_model(
    saved: Path, position: int, value: int
) -> None:
    original = weights(saved).read_bytes()
    weights(saved).write_bytes(original[:position] + bytes([value]) + original[position + 1 :])
    try:
        build_model(load_checkpoint(saved))
    except LlamitaError:
        pass
    finally:
        weights(saved).write_bytes(original)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"x"', "\x00", "[" * 100000])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_broken_json_file_is_named(name: str, content: str, saved: Path) -> None:
    (saved / name).write_text(content)
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(saved)


def test_a_directory_without_weights_says_so(saved: Path) -> None:
    weights(saved).unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        load_checkpoint(saved)


@pytest.fixture
def sharded(saved: Path) -> Path:
    tensors = {name: StoredTensor.of(t) for name, t in load_file(weights(saved)).items()}
    write_safetensors(tensors, saved, largest_shard=2000)
    weights(saved).unlink()
    load_checkpoint(saved)
    return saved


def change_index(directory: Path, **changes: object) -> None:
    path = directory / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"].update(changes)
    path.write_text(json.dumps(index))


def test_a_missing_shard_is_named(sharded: Path) -> None:
    shard = sorted(sharded.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=shard.name):
        load_checkpoint(sharded)


def test_a_tensor_that_its_shard_lacks_is_named(sharded: Path) -> None:
    first = sorted(sharded.glob("model-*.safetensors"))[0]
    change_index(sharded, ghost=first.name)
    with pytest.raises(CheckpointError, match="ghost"):
        load_checkpoint(sharded)


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", "a/b", ".."])
def test_an_index_cannot_name_files_elsewhere(shard: str, sharded: Path) -> None:
    change_index(sharded, ghost=shard)
    with pytest.raises(CheckpointError, match=r"not beside it|not there"):
        load_checkpoint(sharded)


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": []}', "{"])
def test_a_broken_index_is_named(content: str, sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        load_checkpoint(sharded)


# PyTorch's pickles


def as_pickle(saved: Path, **options: bool) -> Path:
    tensors = {name: tensor.clone() for name, tensor in load_file(weights(saved)).items()}
    torch.save(tensors, saved / "pytorch_model.bin", **options)
    weights(saved).unlink()
    return saved / "pytorch_model.bin"


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_pickle_of_plain_weights_is_read(is_zip: bool, saved: Path) -> None:
    before = {name: t.read().clone() for name, t in load_checkpoint(saved).tensors.items()}
    as_pickle(saved, _use_new_zipfile_serialization=is_zip)
    after = load_checkpoint(saved).tensors
    assert all(torch.equal(before[name], after[name].read()) for name in before)


class Runs:
    """Unpickling one of these makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("plain_pickle", [True, False])
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(
    plain_pickle: bool, saved: Path, tmp_path: Path
) -> None:
    path = as_pickle(saved)
    if plain_pickle:
        path.write_bytes(pickle.dumps(Runs(tmp_path / "ran")))
    else:
        torch.save({"model.norm.weight": Runs(tmp_path / "ran")}, path)
    with pytest.raises(CheckpointError, match="could run code"):
        load_checkpoint(saved)
    assert not (tmp_path / "ran").exists()


def test_a_pickle_of_something_else_is_refused(saved: Path) -> None:
    torch.save([torch.zeros(2)], as_pickle(saved))
    with pytest.raises(CheckpointError, match="not a state dict"):
        load_checkpoint(saved)


@pytest.mark.parametrize("size", [0, 10, 1000])
def test_a_truncated_pickle_is_named(size: int, saved: Path) -> None:
    path = as_pickle(saved)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        load_checkpoint(saved)


@pytest.mark.parametrize("layers", [3, 10**9])
def test_another_layer_count_is_refused_before_a_model_is_laid_out(
    saved: Path, layers: int
) -> None:
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
    with pytest.raises(CheckpointError, match=f"num_hidden_layers {layers}"):
        load_checkpoint(saved)

"""PyTorch files written tensor by tensor are what `torch.save` would have written."""

from __future__ import annotations

import weakref
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from llamita.formats.stored import StoredTensor
from llamita.formats.torch_file import read_torch_file
from llamita.formats.torch_write import cast_all, write_torch_file

TENSORS = {
    "float32": torch.randn(5, 7, generator=torch.Generator().manual_seed(0)),
    "bfloat16": torch.arange(3).bfloat16(),
    "float16": torch.arange(24).reshape(2, 3, 4).half(),
    "float64": torch.full((1, 1), 1 / 3, dtype=torch.float64),
    "empty": torch.zeros(0, 3),
    "scalar": torch.tensor(2.5),
    "transposed": torch.arange(12.0).reshape(3, 4).t(),
}
CONFIG = {"width": 64, "none": None, "list": [1.5, "é"], "flag": True, "nested": {"a": 2**40}}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    stored = {name: StoredTensor.of(tensor) for name, tensor in TENSORS.items()}
    stored["again"] = stored["float32"]
    write_torch_file({"model": stored, "config": CONFIG}, tmp_path / "file.pt")
    return tmp_path / "file.pt"


@pytest.mark.parametrize("mapped", [True, False])
def test_torch_loads_it_as_weights_only(written: Path, mapped: bool) -> None:
    content: dict[str, Any] = torch.load(written, weights_only=True, mmap=mapped)
    assert content["config"] == CONFIG
    for name, tensor in TENSORS.items():
        assert content["model"][name].dtype == tensor.dtype
        assert torch.equal(content["model"][name], tensor)


def test_our_own_reader_loads_it(written: Path) -> None:
    content = read_torch_file(written)
    assert content["config"] == CONFIG
    assert all(torch.equal(content["model"][name], t) for name, t in TENSORS.items())


def test_the_archive_is_whole(written: Path) -> None:
    with zipfile.ZipFile(written) as archive:
        assert archive.testzip() is None
        assert len(archive.namelist()) == len(set(archive.namelist()))


def test_a_tensor_named_twice_is_stored_once_and_shared(written: Path) -> None:
    model = torch.load(written, weights_only=True)["model"]
    assert model["again"].data_ptr() == model["float32"].data_ptr()
    with zipfile.ZipFile(written) as archive:
        storages = [name for name in archive.namelist() if "/data/" in name]
    assert len(storages) == len(TENSORS)


def test_numbers_lie_at_multiples_of_64(written: Path) -> None:
    data = written.read_bytes()
    with zipfile.ZipFile(written) as archive:
        for info in archive.infolist():
            header = data[info.header_offset : info.header_offset + 30]
            lengths = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:], "little")
            assert (info.header_offset + 30 + sum(lengths)) % 64 == 0


def test_the_same_content_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    stored = {name: StoredTensor.of(tensor) for name, tensor in TENSORS.items()}
    stored["again"] = stored["float32"]
    write_torch_file({"model": stored, "config": CONFIG}, tmp_path / "other.pt")
    assert (tmp_path / "other.pt").read_bytes() == written.read_bytes()


def test_archives_beyond_four_gigabytes_are_marked_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
    tensors = {str(i): torch.full((100,), float(i)) for i in range(6)}
    stored = {name: StoredTensor.of(tensor) for name, tensor in tensors.items()}
    write_torch_file(stored, tmp_path / "file.pt")
    for mapped in (True, False):
        content = torch.load(tmp_path / "file.pt", weights_only=True, mmap=mapped)
        assert all(torch.equal(content[name], tensor) for name, tensor in tensors.items())
    assert read_torch_file(tmp_path / "file.pt").keys() == tensors.keys()


def test_tensors_are_read_one_after_the_other(tmp_path: Path) -> None:
    alive: set[int] = set()
    most = 0

    def make(number: int) -> StoredTensor:
        def read() -> torch.Tensor:
            nonlocal most
            tensor = torch.full((1000,), float(number))
            alive.add(number)
            most = max(most, len(alive))
            weakref.finalize(tensor, alive.discard, number)
            return tensor

        return StoredTensor(torch.Size([1000]), torch.float32, read, "float32", 4000)

    write_torch_file({str(i): make(i) for i in range(20)}, tmp_path / "file.pt")
    assert most <= 2


def test_casting_leaves_what_has_the_type_already(tmp_path: Path) -> None:
    stored = {name: StoredTensor.of(tensor) for name, tensor in TENSORS.items()}
    cast = cast_all(stored, torch.bfloat16)
    assert {tensor.dtype for tensor in cast.values()} == {torch.bfloat16}
    assert cast["bfloat16"] is stored["bfloat16"]
    assert torch.equal(cast["float32"].read(), TENSORS["float32"].bfloat16())
    assert cast_all(stored, None) == stored

"""PyTorch files that ask for memory, time or code: one error each."""

from __future__ import annotations

import io
import os
import pickle
import struct
from pathlib import Path

import pytest
import torch

from llamita.errors import CheckpointError
from llamita.formats.torch_file import read_torch_file
from tests.fuzz.pickle_parts import build_archive

STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" + b"0X\x03\0\0\0cpuK\x04tQ"


def archive(tmp_path: Path, steps: bytes, storage: bytes = bytes(16)) -> Path:
    """A file whose data.pkl is `steps` between PROTO and STOP, with one storage of 4 floats."""
    path = tmp_path / "model.pt"
    records = [("a/data.pkl", b"\x80\x02" + steps + b"."), ("a/data/0", storage)]
    path.write_bytes(build_archive(records))
    return path


def tensor(size: bytes, stride: bytes, offset: bytes = b"K\x00") -> bytes:
    """Steps that make a tensor of the storage; its numbers are given as steps."""
    start = b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + offset
    return start + b"(" + size + b"t(" + stride + b"t\x89NtR"


def refused(path: Path, words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as error:
        read_torch_file(path)
    assert path.name in error.value.message


def test_the_sound_form_of_these_files_is_read(tmp_path: Path) -> None:
    content = read_torch_file(archive(tmp_path, tensor(b"K\x02K\x02", b"K\x02K\x01")))
    assert torch.equal(content, torch.zeros(2, 2))


def test_a_tensor_expanded_from_a_few_numbers_is_refused(tmp_path: Path) -> None:
    huge = b"J" + struct.pack("<i", 2**30)
    refused(archive(tmp_path, tensor(huge + huge, b"K\x00K\x00")), "of a storage of 4 numbers")


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        (b"K\x05", b"K\x01", b"K\x00"),
        (b"K\x04", b"K\x01", b"K\x01"),
        (b"K\x02", b"K\x04", b"K\x00"),
        (b"K\x04", b"J\xff\xff\xff\xff", b"K\x00"),
        (b"K\x01", b"K\x01", b"\x8a\x09" + bytes(8) + b"\x01"),
    ],
)
def test_a_tensor_beyond_its_storage_is_refused(
    size: bytes, stride: bytes, offset: bytes, tmp_path: Path
) -> None:
    refused(archive(tmp_path, tensor(size, stride, offset)), "makes a tensor")


def test_many_tensors_of_one_storage_are_refused(tmp_path: Path) -> None:
    storage = bytes(4 << 20)
    number = struct.pack("<i", 1 << 20)
    one = tensor(b"J" + number, b"K\x01").replace(b"cpuK\x04", b"cpuJ" + number)
    refused(archive(tmp_path, b"](" + one * 50 + b"e", storage), "many times its own size")


@pytest.mark.parametrize(
    "steps",
    [
        b"cos\nsystem\nX\x04\0\0\0true\x85R",
        b"cbuiltins\neval\nX\x01\0\0\x001\x85R",
        b"ctorch\nFloatTensor\nJ\xff\xff\xff\x7f\x85R",
        b"ctorch.storage\nUntypedStorage\nJ\xff\xff\xff\x7f\x85R",
        b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n)R",
        b"ctorch._utils\n_rebuild_sparse_tensor\n)R",
        b"ctorch._utils\n_rebuild_qtensor\n)R",
        b"ccollections\nCounter\n)R",
        b"cos\nsystem\n",
        b"}ccollections\nOrderedDict\n)K\x01s",
        b"\x82\x01",
        b"cos\nsystem\n)\x81",
        b"i" + b"os\nsystem\n",
    ],
)
def test_what_is_more_than_weights_is_refused(steps: bytes, tmp_path: Path) -> None:
    refused(archive(tmp_path, steps), "could run code|damaged|cannot read")


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R", "makes bytes of what is none"),
        (b"](" + b"]" * 1_100_000 + b"e", "1,000,000 steps"),
        (b"]" + b"\x85" * 100, "nested more than"),
        (b"]q\x00h\x00a", "nested more than"),
        (b"\x8b" + struct.pack("<i", 100_000) + b"\x7f" * 100_000, "a number of"),
        (b"B\xff\xff\xff\x7f", "cannot read"),
        (b"X\xff\xff\xff\xff", "cannot read"),
        (b"", "takes more values"),
        (b"K\x01a", "no container"),
        (b"j\xff\xff\xff\x7f", "never kept"),
    ],
)
def test_what_asks_for_memory_or_time_is_refused(steps: bytes, words: str, tmp_path: Path) -> None:
    refused(archive(tmp_path, steps), words)


def test_containers_that_hold_one_another_a_million_times_are_refused(tmp_path: Path) -> None:
    web = b"]q\x00" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(60))
    refused(archive(tmp_path, web), "too many")


def test_a_key_that_takes_forever_to_hash_is_refused(tmp_path: Path) -> None:
    key = b")q\x00" + b"".join(b"h%c\x86q%c" % (i, i + 1) for i in range(60))
    refused(archive(tmp_path, b"}" + key + b"K\x01s"), "as a key")


def test_a_memo_of_four_billion_places_is_not_made(tmp_path: Path) -> None:
    assert read_torch_file(archive(tmp_path, b"K\x01r\xff\xff\xff\xff")) == 1


def test_a_text_that_is_copied_over_and_over_is_refused(tmp_path: Path) -> None:
    text = b"X" + struct.pack("<I", 10_000_000) + b"x" * 10_000_000 + b"q\x00"
    again = b"c_codecs\nencode\nh\x00X\x06\0\0\0latin1\x86R"
    refused(archive(tmp_path, b"](" + text + again * 20 + b"e"), "over and over")


def test_a_compressed_record_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    records = [("a/data.pkl", b"\x80\x02K\x01."), ("a/data/0", bytes(100_000_000))]
    path.write_bytes(build_archive(records, compressed="a/data/0"))
    assert path.stat().st_size < 1_000_000
    refused(path, "compressed")


def test_records_that_share_a_name_or_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(build_archive([("a/data.pkl", b"\x80\x02K\x01.")] * 2))
    refused(path, "twice")
    records = [("a/data.pkl", b"\x80\x02K\x01."), ("a/data/0", bytes(16)), ("a/data/1", bytes(16))]
    data = build_archive(records)
    entry = data.rindex(b"a/data/1") - 4
    other = data.rindex(b"a/data/0") - 4
    path.write_bytes(data[:entry] + data[other : other + 4] + data[entry + 4 :])
    refused(path, "overlap")


def test_a_directory_that_claims_more_than_the_file_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, b"K\x01")
    data = path.read_bytes()
    end = data.rindex(b"PK\x05\x06")
    for offset, width in ((10, 2), (12, 4), (16, 4)):
        changed = data[: end + offset] + b"\xff" * width + data[end + offset + width :]
        path.write_bytes(changed)
        refused(path, "directory")


def test_a_storage_size_of_the_old_form_beyond_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    torch.save({"w": torch.zeros(4)}, path, _use_new_zipfile_serialization=False)
    assert torch.equal(read_torch_file(path)["w"], torch.zeros(4))
    data = path.read_bytes()
    for claim in (2**62, 2**63, 5):
        path.write_bytes(data[:-24] + struct.pack("<Q", claim) + data[-16:])
        refused(path, "claims")


def test_a_program_and_a_plain_pickle_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    records = [("a/data.pkl", b"\x80\x02N."), ("a/constants.pkl", b"\x80\x02).")]
    path.write_bytes(build_archive(records))
    refused(path, "TorchScript")
    path.write_bytes(pickle.dumps({"a": 1}))
    refused(path, "does not begin like one")


def test_everything_that_training_keeps_is_read_as_torch_reads_it(tmp_path: Path) -> None:
    layer = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(4)).sum().backward()
    optimizer.step()
    table = torch.arange(12.0).reshape(3, 4)
    content = {
        "model": layer.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": [layer.weight, table, table.t(), table[1:, 1:], table.bfloat16()],
        "scalars": (torch.tensor(3.0), torch.empty(0), torch.tensor([1], dtype=torch.uint16)),
        "plain": [1, 2.5, None, True, "x", b"abc", {1, 2}, 2**80, bytearray(b"xy")],
        "torch": [torch.Size([2, 3]), torch.float16, torch.device("cpu"), torch.get_rng_state()],
    }
    for is_zip in (True, False):
        for protocol in (2, 4):
            buffer = io.BytesIO()
            torch.save(
                content,
                buffer,
                _use_new_zipfile_serialization=is_zip,
                pickle_protocol=protocol,
            )
            path = tmp_path / "all.pt"
            path.write_bytes(buffer.getvalue())
            assert _same(content, read_torch_file(path))


def _same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a.detach(), b)
    if isinstance(a, dict):
        assert isinstance(b, dict)
        return list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        assert isinstance(b, (list, tuple))
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b


def test_tensors_of_one_storage_share_it(tmp_path: Path) -> None:
    table = torch.zeros(4)
    torch.save({"a": table, "b": table[1:]}, tmp_path / "m.pt")
    content = read_torch_file(tmp_path / "m.pt")
    content["a"][1] = 5.0
    assert content["b"][0] == 5.0
    assert read_torch_file(tmp_path / "m.pt")["a"][1] == 0.0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.pt")
    refused(tmp_path / "model.pt", "a device or a pipe")

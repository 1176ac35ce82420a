"""Tensors that are read when they are needed: joining loses nothing."""

from __future__ import annotations

from pathlib import Path

import torch

from llamita.config import ModelConfig
from llamita.formats.armgpt import feed_forward_width, read_armgpt, write_armgpt
from llamita.formats.checkpoint import HEAD, Checkpoint
from llamita.formats.stored import StoredTensor, concatenate
from llamita.model.transformer import Transformer


def test_parts_of_several_types_join_without_a_loss() -> None:
    fine = torch.tensor([1 + 2**-20])
    coarse = torch.ones(2, dtype=torch.bfloat16)
    for parts in ([coarse, fine], [fine, coarse]):
        joined = concatenate([StoredTensor.of(part) for part in parts], 0)
        assert (joined.dtype, joined.kind) == (torch.float32, "float32")
        assert joined.read().tolist() == torch.cat(parts).tolist()
    halves = [StoredTensor.of(coarse), StoredTensor.of(coarse.half())]
    assert concatenate(halves, 0).dtype == torch.float32
    same = concatenate([StoredTensor.of(coarse)] * 2, 0)
    assert (same.dtype, same.kind) == (torch.bfloat16, "bfloat16")


def test_a_joint_tensor_on_disk_is_as_fine_as_its_finest_part(tmp_path: Path) -> None:
    model = Transformer(ModelConfig(40, 32, feed_forward_width(32), 2, 4)).initialize(0)
    tensors = {name: StoredTensor.of(tensor) for name, tensor in model.state_dict().items()}
    del tensors[HEAD]
    for name, tensor in tensors.items():
        if "q_proj" in name:
            tensors[name] = StoredTensor.of(tensor.read().bfloat16())
    write_armgpt(Checkpoint(model.config, tensors, tmp_path), tmp_path / "model.pt")
    read = read_armgpt(tmp_path / "model.pt").tensors
    for name, tensor in tensors.items():
        assert torch.equal(tensor.read().float(), read[name].read().float()), name

"""Weights of several types: what a layout joins has the finest of them, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import torch

from llamita.config import ModelConfig
from llamita.formats.armgpt import feed_forward_width
from llamita.formats.checkpoint import HEAD, Checkpoint
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import write_model_files
from llamita.formats.stored import StoredTensor
from llamita.model.transformer import Transformer

from .conftest import run_conversion


def mixed(path: Path) -> Checkpoint:
    """A model directory whose queries alone are bfloat16."""
    model = Transformer(ModelConfig(40, 32, feed_forward_width(32), 2, 4)).initialize(0)
    tensors = {
        name: StoredTensor.of(tensor.bfloat16() if "q_proj" in name else tensor)
        for name, tensor in model.state_dict().items()
        if name != HEAD
    }
    path.mkdir()
    write_model_files(model.config, tensors, path)
    return load_checkpoint(path)


def test_joined_tensors_lose_nothing_and_are_told(tmp_path: Path, no_runtime: None) -> None:
    source = mixed(tmp_path / "hf")
    report = run_conversion(tmp_path / "hf", tmp_path / "m", target="armgpt")
    assert report["differences"] == []
    assert report["notes"][:1] == [
        "model.layers.0.self_attn.q_proj.weight and 1 more are stored as float32, which holds "
        "their bfloat16 without loss."
    ]
    written = load_checkpoint(tmp_path / "m").tensors
    for name, tensor in source.tensors.items():
        assert torch.equal(tensor.read().float(), written[name].read().float()), name


def test_tensors_that_are_not_joined_keep_their_types(tmp_path: Path, no_runtime: None) -> None:
    source = mixed(tmp_path / "hf")
    for target in ("hermes", "meta", "gguf"):
        report = run_conversion(tmp_path / "hf", tmp_path / target, target=target)
        assert report["differences"] == []
        assert not any("without loss" in note for note in report["notes"])
        written = load_checkpoint(tmp_path / target).tensors
        assert {n: t.dtype for n, t in written.items()} == {
            n: t.dtype for n, t in source.tensors.items()
        }

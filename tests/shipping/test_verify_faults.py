"""`compare` on checkpoints as they lie on the disk: right ones pass, each usual fault fails."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import llamita
from llamita.shipping.verify import Comparison, compare
from tests.shipping.conftest import run_conversion
from tests.shipping.test_convert_targets import CASES, golden

Change = Callable[[Path], Any]


def compared(a: Path, b: Path) -> Comparison:
    return compare(*(llamita.load(path, device="cpu", dtype="float32") for path in (a, b)))


@pytest.mark.parametrize("case", CASES)
def test_a_golden_case_and_what_it_was_converted_to_are_the_same(
    case: str, tmp_path: Path, no_runtime: None
) -> None:
    run_conversion(golden(case), tmp_path / "out", target="hf", verify=False)
    assert compared(golden(case), tmp_path / "out").same


def change_tensor(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def apply(directory: Path) -> None:
        path = directory / "model.safetensors"
        tensors = load_file(path)
        tensors[name] = change(tensors[name]).contiguous()
        save_file(tensors, path, metadata={"format": "pt"})

    return apply


def change_json(file: str, change: Callable[[dict[str, Any]], Any]) -> Change:
    def apply(directory: Path) -> None:
        content = json.loads((directory / file).read_text())
        change(content)
        (directory / file).write_text(json.dumps(content))

    return apply


def permuted_by(heads: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """There and back with another number of heads, as a converter that takes the wrong one."""
    from llamita.formats.key_map import halves_from_pairs, pairs_from_halves

    return lambda rows: halves_from_pairs(pairs_from_halves(rows, 2), heads)


def swap_tokens(content: dict[str, Any]) -> None:
    vocabulary = content["model"]["vocab"]
    a, b = list(vocabulary)[-2:]
    vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]


FAULTS: dict[str, Change] = {
    "kv rows permuted by the query heads": change_tensor(
        "model.layers.1.self_attn.k_proj.weight", permuted_by(4)
    ),
    "another eps": change_json("config.json", lambda c: c.update(rms_norm_eps=1e-5)),
    "a swapped token": change_json("tokenizer.json", swap_tokens),
    "another theta": change_json("config.json", lambda c: c.update(rope_theta=10001.0)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_the_disk_is_found(hf: Path, tmp_path: Path, fault: str) -> None:
    shutil.copytree(hf, tmp_path / "b")
    assert compared(hf, tmp_path / "b").same
    FAULTS[fault](tmp_path / "b")
    found = compared(hf, tmp_path / "b")
    assert not found.same
    assert found.differences


def test_a_stale_head_is_found(hf: Path, tmp_path: Path) -> None:
    """The head that a tied model was saved with before its embedding was trained on."""
    shutil.copytree(hf, tmp_path / "b")
    tensors = load_file(hf / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 0.01
    save_file(tensors, tmp_path / "b" / "model.safetensors", metadata={"format": "pt"})
    change_json("config.json", lambda c: c.update(tie_word_embeddings=False))(tmp_path / "b")
    assert not compared(hf, tmp_path / "b").same

"""Numbers that a target does not have are refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from llamita.errors import CheckpointError, ConfigError
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.tokenizer.base import Tokenizer
from tests.shipping.conftest import run_conversion, small_model


def save(path: Path, tokenizer: Tokenizer, value: float, dtype: torch.dtype | None = None) -> Path:
    model = small_model(tokenizer).to(dtype or torch.float32)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[2, 3] = value
    save_model_directory(model, path, tokenizer, dtype=dtype)
    return path


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("quantization", ["q8_0", "q4_0", "q4_1"])
def test_what_is_not_finite_has_no_place_in_blocks(
    value: float, quantization: str, bpe_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    source = save(tmp_path / "in", bpe_tokenizer, value)
    with pytest.raises(ConfigError, match=r"layers\.1\.mlp\.up_proj\.weight .* not finite"):
        run_conversion(source, tmp_path / "m.gguf", quantization=quantization)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_what_is_not_finite_is_written_as_it_is_but_never_to_gguf(
    bpe_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    source = save(tmp_path / "in", bpe_tokenizer, float("inf"))
    report = run_conversion(source, tmp_path / "out", target="hf", quantization="f16", verify=False)
    assert report["status"] == "unverified"
    found = load_checkpoint(tmp_path / "out").tensors["model.layers.1.mlp.up_proj.weight"]
    assert torch.isinf(found.read()).sum() == 1
    for quantization in (None, "f16"):
        with pytest.raises(CheckpointError, match=r"blk\.1\.ffn_up\.weight .* infinite"):
            run_conversion(source, tmp_path / "m.gguf", quantization=quantization)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_float64_goes_to_gguf_when_it_is_asked_to_be_rounded(
    bpe_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    source = save(tmp_path / "in", bpe_tokenizer, 1 / 3, torch.float64)
    assert load_checkpoint(source).dtype == torch.float64
    with pytest.raises(ConfigError, match="float64") as caught:
        run_conversion(source, tmp_path / "m.gguf")
    assert "--quant f32" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    for quantization in ("f32", "q8_0", "bf16"):
        path = tmp_path / f"{quantization}.gguf"
        report = run_conversion(source, path, quantization=quantization)
        assert report["differences"] == []
    report = run_conversion(source, tmp_path / "out", target="hf")
    assert report["differences"] == []
    assert load_checkpoint(tmp_path / "out").dtype == torch.float64


def test_float64_beyond_float32_is_refused(bpe_tokenizer: Tokenizer, tmp_path: Path) -> None:
    source = save(tmp_path / "in", bpe_tokenizer, 1e39, torch.float64)
    for quantization in ("f32", "bf16", "f16"):
        with pytest.raises(ConfigError, match="1e\\+39"):
            run_conversion(source, tmp_path / "out", target="hf", quantization=quantization)

"""Blocks to numbers and back, against the gguf library to the last bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from llamita.errors import CheckpointError, ConfigError
from llamita.quantization.blocks import dequantize, quantize
from llamita.quantization.kinds import KINDS

BLOCKS = [name for name in KINDS if name != "F64"]
WRITTEN = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"]


def peer(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name]


def random_bytes(name: str, rows: int, length: int) -> np.ndarray:
    """Any codes, but scales that are numbers: a float16 with all exponent bits set is not."""
    kind = KINDS[name]
    draw = np.random.default_rng(0)
    if kind.block_size == 1:
        numbers = torch.from_numpy(draw.normal(size=(rows, length)).astype(np.float32))
        return quantize(numbers, name).numpy()
    data = draw.integers(0, 256, (rows, kind.row_bytes(length)), dtype=np.uint8)
    blocks = data.reshape(-1, kind.block_bytes)
    scales = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)}.get(name, (0, 2))
    for offset in scales if name not in ("Q8_0", "Q4_0", "Q5_0") else (0,):
        half = draw.normal(size=len(blocks)).astype(np.float16)
        blocks[:, offset : offset + 2] = half.view(np.uint8).reshape(-1, 2)
    return data


@pytest.mark.parametrize("name", BLOCKS)
def test_every_kind_is_read_as_the_gguf_library_reads_it(name: str) -> None:
    assert (KINDS[name].block_size, KINDS[name].block_bytes) == gguf.GGML_QUANT_SIZES[peer(name)]
    assert KINDS[name].number == peer(name)
    data = random_bytes(name, rows=2100, length=512)
    theirs = gguf.quants.dequantize(data, peer(name))
    ours = dequantize(torch.from_numpy(data), name, (2100, 512))
    np.testing.assert_array_equal(
        ours.numpy().view(np.uint32), np.ascontiguousarray(theirs).view(np.uint32)
    )


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("scale", [1e-6, 0.02, 30.0])
def test_every_kind_is_written_as_the_gguf_library_writes_it(name: str, scale: float) -> None:
    numbers = np.random.default_rng(1).normal(size=(2100, 512)).astype(np.float32) * scale
    numbers[0, :32] = 0
    numbers[1, :32] = 1
    numbers[2, :32] = -1
    numbers[3, :32] = [1, -1] * 16  # two numbers of the largest magnitude: the first decides
    numbers[4, :32] = np.arange(32) / 2
    ours = quantize(torch.from_numpy(numbers), name)
    theirs = gguf.quants.quantize(numbers, peer(name))
    np.testing.assert_array_equal(ours.numpy(), theirs.view(np.uint8).reshape(ours.shape))


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_1"])
def test_quantizing_what_was_quantized_changes_at_most_a_rounding(name: str) -> None:
    numbers = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    once = dequantize(quantize(numbers, name), name, numbers.shape)
    twice = dequantize(quantize(once, name), name, numbers.shape)
    # Scales are rounded to float16 anew, and nothing else.
    assert ((once - twice).abs() <= once.abs() * 2**-10).float().mean() > 0.97


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused_by_the_name_of_their_tensor(
    name: str, wrong: float
) -> None:
    numbers = torch.zeros(4, 64)
    numbers[3, 5] = wrong
    with pytest.raises(CheckpointError, match=r"blk\.0\.ffn_up\.weight holds numbers"):
        quantize(numbers, name, "blk.0.ffn_up.weight")


@pytest.mark.parametrize("name", ["F16", "Q8_0", "Q4_0", "Q4_1"])
def test_numbers_too_large_for_a_kind_are_refused(name: str) -> None:
    numbers = torch.full((1, 32), 1e8)
    numbers[0, 0] = -1e8
    with pytest.raises(CheckpointError, match=f"1e\\+08, too large for {name}"):
        quantize(numbers, name)


def test_rows_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(ConfigError, match="rows of w have 48 numbers; Q8_0 needs a multiple of 32"):
        quantize(torch.zeros(2, 48), "Q8_0", "w")
    with pytest.raises(CheckpointError, match="34 bytes of Q8_0 are no tensor of the shape"):
        dequantize(torch.zeros(34, dtype=torch.uint8), "Q8_0", (1, 64))


def test_kinds_that_are_not_written_or_read_are_named() -> None:
    with pytest.raises(ConfigError, match="Q6_K are read but not written"):
        quantize(torch.zeros(1, 256), "Q6_K")
    with pytest.raises(CheckpointError, match="IQ4_NL are not read"):
        dequantize(torch.zeros(18, dtype=torch.uint8), "IQ4_NL", (32,))

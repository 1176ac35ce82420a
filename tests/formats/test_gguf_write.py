"""What is written as GGUF: types, fallbacks, metadata, and what is refused before anything is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from llamita.errors import CheckpointError, ConfigError
from llamita.formats.gguf_header import read_gguf_header
from llamita.formats.gguf_read import read_gguf
from llamita.formats.gguf_rope import frequency_factors, scaling_of_factors
from llamita.formats.gguf_write import check_gguf, write_gguf
from llamita.formats.stored import StoredTensor
from llamita.formats.vocabulary import CONTROL, NORMAL, UNUSED, USER_DEFINED, Vocabulary
from llamita.model.rope import RotaryEmbedding

from .gguf_cases import LLAMA3, MODELS, VOCABULARY, YARN, config, patched_file, random_checkpoint

UP = "model.layers.0.mlp.up_proj.weight"


def kinds(path: Path) -> dict[str, str]:
    return {name: info.kind.name for name, info in read_gguf_header(path).tensors.items()}


@pytest.mark.parametrize("quantization", ["q4_0", "q4_1"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_table_that_makes_the_logits_is_kept_finer(
    quantization: str, tied: bool, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(random_checkpoint(tie_word_embeddings=tied), VOCABULARY, path, quantization)
    found = kinds(path)
    assert found["token_embd.weight"] == ("Q8_0" if tied else quantization.upper())
    assert found.get("output.weight", "Q8_0") == "Q8_0"
    assert found["blk.1.attn_k.weight"] == quantization.upper()
    assert {kind for name, kind in found.items() if "norm" in name} == {"F32"}


def test_rows_that_are_no_whole_blocks_fall_back_and_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    checkpoint = random_checkpoint(intermediate_size=80)
    [note] = write_gguf(checkpoint, VOCABULARY, path, "q8_0")
    assert note == (
        "blk.0.ffn_down.weight and 1 more became F16: rows of 80 numbers are no multiple of 32, "
        "as Q8_0 needs."
    )
    found = kinds(path)
    assert found["blk.0.ffn_down.weight"] == "F16"
    assert found["blk.0.ffn_up.weight"] == "Q8_0"


def test_the_gguf_library_reads_what_is_written(tmp_path: Path) -> None:
    checkpoint = random_checkpoint(rope_scaling=YARN)
    path = tmp_path / "model.gguf"
    write_gguf(checkpoint, VOCABULARY, path, "q8_0")
    reader = gguf.GGUFReader(path)
    said = {field.name: field.contents() for field in reader.fields.values()}
    assert said["general.architecture"] == "llama"
    assert said["general.name"] == "Random"
    assert said["general.license"] == "apache-2.0"
    assert said["general.file_type"] == gguf.LlamaFileType.MOSTLY_Q8_0
    assert said["general.quantization_version"] == gguf.GGML_QUANT_VERSION
    assert said["llama.rope.scaling.type"] == "yarn"
    assert said["llama.rope.scaling.original_context_length"] == 64
    assert said["tokenizer.ggml.tokens"] == VOCABULARY.tokens
    assert said["tokenizer.ggml.merges"] == VOCABULARY.merges
    assert said["tokenizer.ggml.eos_token_id"] == 258
    assert said["tokenizer.ggml.add_bos_token"] is False
    assert said["tokenizer.chat_template"] == VOCABULARY.chat_template
    theirs = {tensor.name: tensor for tensor in reader.tensors}
    tensor = theirs["blk.0.ffn_up.weight"]
    np.testing.assert_array_equal(
        gguf.quants.dequantize(tensor.data, tensor.tensor_type),
        read_gguf(path).tensors[UP].read().numpy(),
    )


def test_all_that_a_vocabulary_says_comes_back(tmp_path: Path) -> None:
    count = config().vocab_size
    vocabulary = Vocabulary(
        model="llama",
        tokens=[f"▁{number}" for number in range(count)],
        pre="default",
        scores=[-float(number) for number in range(count)],
        types=[NORMAL] * (count - 1) + [USER_DEFINED],
        ids={"bos": 1, "eos": 2, "unk": 0, "pad": 3, "eot": 4, "sep": 5},
        add_bos=True,
        add_eos=False,
        add_space_prefix=True,
        remove_extra_whitespaces=False,
        chat_template="default",
        chat_templates={"tool_use": "other"},
    )
    path = tmp_path / "model.gguf"
    checkpoint = random_checkpoint(bos_token_id=1, eos_token_id=(2, 4), pad_token_id=3)
    write_gguf(checkpoint, vocabulary, path, "f16")
    read = read_gguf(path)
    assert read.tokenizer == vocabulary
    assert read.config == checkpoint.config


def test_ends_that_only_the_model_knows_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    control = with_controls(7, 9, 11)
    checkpoint = random_checkpoint(eos_token_id=(7, 258))
    write_gguf(replace(checkpoint, generation={"eos_token_id": [258, 9]}), control, path)
    assert read_gguf(path).config.eos_token_id == (258, 7, 9)
    write_gguf(replace(random_checkpoint(), generation={"eos_token_id": 9}), control, path)
    read = read_gguf(path)
    assert isinstance(read.tokenizer, Vocabulary)
    assert read.tokenizer.ids == {"bos": 257, "eos": 258, "eom": 9}
    too_many = replace(checkpoint, generation={"eos_token_id": [9, 11]})
    for vocabulary in (control, None):
        with pytest.raises(ConfigError, match=r"eos_token_id is \[7, 258, 9, 11\]; GGUF names"):
            write_gguf(too_many, vocabulary, tmp_path / "new.gguf")
    named = replace(control, ids={"eos": 258, "eot": 11})
    with pytest.raises(ConfigError, match=r"\[7, 258, 9\], beside the tokenizer's own \[258, 11\]"):
        write_gguf(
            replace(checkpoint, generation={"eos_token_id": 9}), named, tmp_path / "new.gguf"
        )
    assert not (tmp_path / "new.gguf").exists()


def test_ends_and_roles_are_named_without_a_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    checkpoint = random_checkpoint(eos_token_id=(7, 258), bos_token_id=3, pad_token_id=0)
    write_gguf(replace(checkpoint, generation={"eos_token_id": 9}), None, path)
    read = read_gguf(path)
    assert read.tokenizer is None
    assert read.config == checkpoint.config.with_changes(eos_token_id=(7, 258, 9))


def test_a_token_of_text_cannot_be_an_end(tmp_path: Path) -> None:
    checkpoint = replace(random_checkpoint(), generation={"eos_token_id": [258, 9]})
    with pytest.raises(ConfigError, match=r"eos_token_id names 9, a token of plain text \('Ġw9'\)"):
        write_gguf(checkpoint, VOCABULARY, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def with_controls(*ids: int) -> Vocabulary:
    types = [CONTROL if i in ids else kind for i, kind in enumerate(VOCABULARY.types or [])]
    return replace(VOCABULARY, types=types)


def test_rows_without_a_token_are_filled(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(random_checkpoint(vocab_size=288), VOCABULARY, path)
    read = read_gguf(path)
    assert isinstance(read.tokenizer, Vocabulary)
    assert read.tokenizer.tokens[259:] == [f"[PAD{number}]" for number in range(259, 288)]
    assert read.tokenizer.types is not None
    assert read.tokenizer.types[259:] == [UNUSED] * 29
    assert read.config.vocab_size == 288


def test_a_vocabulary_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    checkpoint = random_checkpoint(vocab_size=256, bos_token_id=None, eos_token_id=None)
    with pytest.raises(ConfigError, match="has 259 tokens, but vocab_size is 256"):
        write_gguf(checkpoint, VOCABULARY, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


@pytest.mark.parametrize("quantization", ["q8_0", "q4_0", "q4_1"])
@pytest.mark.parametrize("name", ["grouped", "qwen2"])
def test_blocks_of_the_right_kind_are_taken_over(
    name: str, quantization: str, tmp_path: Path
) -> None:
    first, second, third = (tmp_path / f"{number}.gguf" for number in range(3))
    write_gguf(random_checkpoint(**MODELS[name]), VOCABULARY, first, quantization)
    write_gguf(read_gguf(first), VOCABULARY, second, quantization)
    write_gguf(replace(read_gguf(first), name="Other"), VOCABULARY, third)
    one, two, three = map(read_gguf_header, (first, second, third))
    assert kinds(first) == kinds(second) == kinds(third)
    for key, info in one.tensors.items():
        for other in (two, three):
            assert torch.equal(one.bytes_of(info), other.bytes_of(other.tensors[key])), key


def test_a_plain_type_keeps_its_numbers(tmp_path: Path) -> None:
    checkpoint = random_checkpoint()
    halves = {
        name: StoredTensor.of(tensor.read().detach().bfloat16())
        for name, tensor in checkpoint.tensors.items()
    }
    path = tmp_path / "model.gguf"
    write_gguf(replace(checkpoint, tensors=halves), VOCABULARY, path)
    assert kinds(path)["blk.0.ffn_up.weight"] == "BF16"
    assert kinds(path)["blk.0.ffn_norm.weight"] == "F32"
    read = read_gguf(path)
    for name, tensor in halves.items():
        assert torch.equal(tensor.read().float(), read.tensors[name].read().float()), name


def test_numbers_that_are_none_are_refused_by_their_name(tmp_path: Path) -> None:
    checkpoint = random_checkpoint()
    broken = checkpoint.tensors[UP].read().detach().clone()
    broken[3, 3] = float("nan")
    tensors = {**checkpoint.tensors, UP: StoredTensor.of(broken)}
    with pytest.raises(CheckpointError, match=r"blk\.0\.ffn_up\.weight holds numbers"):
        write_gguf(replace(checkpoint, tensors=tensors), VOCABULARY, tmp_path / "m.gguf", "q4_0")


QK = {"use_qk_norm": True}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "window": ({"sliding_window": 32}, "sliding_window is 32"),
    "dynamic": (
        {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        "llama.cpp has no dynamic scaling",
    ),
    "llama3-with-qk-norm": ({"rope_scaling": LLAMA3, **QK}, "qwen3 has no llama3 scaling"),
    "biases-with-qk-norm": ({"attention_bias": True, **QK}, "attention_bias is true"),
    "mlp-bias-with-qk-norm": ({"mlp_bias": True, **QK}, "mlp_bias is true"),
    "magnitude": ({"rope_scaling": {**YARN, "attention_factor": 2.0}}, "attention_factor is 2.0"),
    "mscale": ({"rope_scaling": {**YARN, "mscale": 2.0, "mscale_all_dim": 1.0}}, "mscale is 2.0"),
    "beta": ({"rope_scaling": {**YARN, "beta_fast": 16.0}}, "beta_fast is 16.0"),
    "truncate": ({"rope_scaling": {**YARN, "truncate": False}}, "truncate is false"),
    "llama3-of-one-factor": (
        {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 4}},
        "its factors on the frequencies do not tell the scaling",
    ),
    "ends": ({"eos_token_id": (1, 2, 3, 4)}, "three tokens that end a turn at most"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_llama_cpp_would_not_compute_is_refused_before_writing(
    name: str, tmp_path: Path
) -> None:
    changes, problem = REFUSED[name]
    with pytest.raises(ConfigError) as caught:
        check_gguf(config(**changes), None)
    assert problem in caught.value.message
    with pytest.raises(ConfigError):
        write_gguf(random_checkpoint(**changes), VOCABULARY, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def test_a_scaling_that_could_not_be_read_back_is_refused(tmp_path: Path) -> None:
    """Waves that are all long, or of which one alone is on the ramp, do not tell the scaling."""
    refused = 0
    for head_dim, theta, factor in itertools.product((16, 64), (10000.0, 1e6), (2.0, 3.7)):
        for high, original in itertools.product((2.0, 4.0), (4, 64, 3000)):
            changes = {"factor": factor, "high_freq_factor": high}
            scaling = {**LLAMA3, **changes, "original_max_position_embeddings": original}
            wanted = config(head_dim=head_dim, rope_theta=theta, rope_scaling=scaling)
            plain = wanted.with_changes(rope_scaling=None)
            try:
                check_gguf(wanted, None)
            except ConfigError:
                refused += 1
                continue
            read = scaling_of_factors(frequency_factors(wanted), plain, "it")
            ours = RotaryEmbedding(wanted).inverse_frequencies
            theirs = RotaryEmbedding(plain.with_changes(rope_scaling=read)).inverse_frequencies
            torch.testing.assert_close(theirs, ours, rtol=5e-6, atol=0)
    assert 0 < refused < 48


def test_a_window_that_the_context_never_fills_is_none() -> None:
    check_gguf(config(sliding_window=256), "q8_0")


def test_types_that_are_not_written_are_refused() -> None:
    with pytest.raises(ConfigError, match="GGUF is not written as 'q4_k'"):
        check_gguf(config(), "q4_k")


def test_factors_of_llama_3_travel_in_their_tensor(tmp_path: Path) -> None:
    header = read_gguf_header(patched_file(tmp_path / "m.gguf", rope_scaling=LLAMA3))
    assert header.tensors["rope_freqs.weight"].shape == (8,)
    assert "llama.rope.scaling.type" not in header.metadata

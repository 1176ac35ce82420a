"""Shapes by name and by size: published parameter counts, and totals that were asked for."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llamita.config import PRESETS, parse_size, preset, shape_for
from llamita.errors import ConfigError

# Published totals, or those of SYSTEMS.md, with the family's own vocabulary.
KNOWN = {
    "armgpt-xlarge": (16_000, 319_996_928),
    "armgpt-giant": (16_000, 930_645_504),
    "hermes-1b": (32_000, 1_034_512_384),
    "smollm2-135m": (49_152, 134_515_008),
    "smollm2-360m": (49_152, 361_821_120),
    "smollm2-1.7b": (49_152, 1_711_376_384),
    "tinyllama-1.1b": (32_000, 1_100_048_384),
    "llama-2-7b": (32_000, 6_738_415_616),
    "llama-2-13b": (32_000, 13_015_864_320),
    "llama-2-70b": (32_000, 68_976_648_192),
    "llama-3-8b": (128_256, 8_030_261_248),
    "llama-3-70b": (128_256, 70_553_706_496),
    "llama-3.2-1b": (128_256, 1_235_814_400),
    "llama-3.2-3b": (128_256, 3_212_749_824),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_preset_has_its_familys_parameter_count(name: str) -> None:
    vocab_size, parameters = KNOWN[name]
    assert preset(name, vocab_size).count_parameters() == parameters


def test_hermes_500m_is_the_size_it_really_is() -> None:
    assert round(preset("hermes-500m", 32_000).count_parameters() / 1e6) == 644


def test_hermes_presets_are_those_its_checkpoints_are_read_with() -> None:
    from llamita.formats.hermes import PRESETS as READ

    for name, known in READ.items():
        ours = preset(f"hermes-{name}", 32_000)
        for field in ("hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"):
            assert getattr(ours, field) == getattr(known, field), (name, field)
        assert ours.num_attention_heads == known.num_attention_heads
        assert ours.num_key_value_heads == known.num_key_value_heads


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("armgpt")])
def test_armgpt_presets_follow_its_formula(name: str) -> None:
    shape = preset(name, 1000)
    assert shape.intermediate_size == math.ceil(int(8 * shape.hidden_size / 3) / 64) * 64
    assert shape.num_key_value_heads == shape.num_attention_heads


def test_a_preset_can_be_overridden() -> None:
    shape = preset("smollm2-135m", 300, rope_theta=5000.0, hidden_size=288)
    assert (shape.rope_theta, shape.hidden_size, shape.head_dim) == (5000.0, 288, 32)


@pytest.mark.parametrize(
    ("text", "size"),
    [("10m", 10_000_000), ("500k", 500_000), ("1.3B", 1_300_000_000), ("123_456", 123_456)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "ten", "10 m m", "-5m", "10g", "nan", "5k", "200b", "1e6"])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_size(text)
    assert "10m" in (error.value.hint or "")


@example(size=393_217, vocab_size=49_152)
@example(size=1_740_000, vocab_size=128_256)
@example(size=2_011_446, vocab_size=128_256)
@given(
    size=st.floats(math.log(1e5), math.log(1e10)).map(lambda x: round(math.exp(x))),
    vocab_size=st.sampled_from([100, 260, 1000, 4096, 8192, 16_000, 32_000, 49_152, 128_256]),
)
def test_any_size_is_hit_within_three_percent_or_refused_for_its_vocabulary(
    size: int, vocab_size: int
) -> None:
    if 8 * vocab_size >= size:
        with pytest.raises(ConfigError, match=f"{vocab_size:,}"):
            shape_for(size, vocab_size, 512)
        return
    shape = shape_for(size, vocab_size, 512)
    assert abs(shape.count_parameters() / size - 1) <= 0.03
    assert (shape.vocab_size, shape.max_position_embeddings) == (vocab_size, 512)
    if vocab_size * 128 < size:
        assert shape.hidden_size % 8 == 0
        assert shape.hidden_size / 64 < shape.num_hidden_layers * 4
    if size > 30_000_000 > 600 * vocab_size:
        assert shape.hidden_size % 64 == 0
        assert 2 < shape.intermediate_size / shape.hidden_size < 4


def test_smollm2s_size_gives_smollm2s_shape() -> None:
    asked, known = shape_for(360_000_000, 49_152), preset("smollm2-360m", 49_152)
    for field in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_key_value_heads"):
        assert getattr(asked, field) == getattr(known, field)


def test_small_models_share_the_table_with_the_head_and_large_ones_do_not() -> None:
    assert shape_for(100_000_000, 8192).tie_word_embeddings
    assert not shape_for(8_000_000_000, 32_000).tie_word_embeddings
    untied = shape_for(10_000_000, 8192, tie_word_embeddings=False)
    assert not untied.tie_word_embeddings
    assert untied.count_parameters() == pytest.approx(10e6, rel=0.03)


def test_a_vocabulary_larger_than_the_model_is_refused_with_numbers() -> None:
    with pytest.raises(ConfigError, match=r"49,152 alone takes 393,216") as error:
        shape_for(300_000, 49_152)
    assert "bpe:SIZE" in (error.value.hint or "")

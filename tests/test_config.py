"""`ModelConfig` takes what can be a model and names the field of what cannot."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamita.config import FIELD_NAMES, ModelConfig
from llamita.errors import ConfigError

SHAPE = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def config(**fields: Any) -> ModelConfig:
    return ModelConfig(**{**SHAPE, **fields})


def test_what_is_left_out_follows_from_the_rest() -> None:
    plain = config()
    assert (plain.num_key_value_heads, plain.head_dim) == (4, 16)
    assert plain.attention_output_bias is False
    assert config(attention_bias=True).attention_output_bias is True
    assert config(attention_bias=True, attention_output_bias=False).attention_output_bias is False
    assert plain.rope_type == "default"


def test_it_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().hidden_size = 32  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", 0),
        ("vocab_size", -1),
        ("vocab_size", 2**31),
        ("vocab_size", 10.0),
        ("vocab_size", "100"),
        ("vocab_size", None),
        ("vocab_size", True),
        ("hidden_size", 0),
        ("hidden_size", 63),
        ("intermediate_size", 0),
        ("num_hidden_layers", 0),
        ("num_attention_heads", 0),
        ("num_attention_heads", 3),
        ("num_key_value_heads", 3),
        ("num_key_value_heads", 8),
        ("num_key_value_heads", -4),
        ("head_dim", 15),
        ("head_dim", -16),
        ("max_position_embeddings", 0),
        ("rope_theta", 0),
        ("rope_theta", -1.0),
        ("rope_theta", math.inf),
        ("rope_theta", "10000"),
        ("rms_norm_eps", 0),
        ("rms_norm_eps", math.nan),
        ("initializer_range", 0),
        ("attention_dropout", 1.0),
        ("attention_dropout", -0.1),
        ("residual_dropout", 1.5),
        ("sliding_window", 0),
        ("sliding_window", 2.5),
        ("tie_word_embeddings", None),
        ("tie_word_embeddings", 1),
        ("attention_bias", "true"),
        ("mlp_bias", 0),
        ("use_qk_norm", "no"),
        ("bos_token_id", 100),
        ("bos_token_id", -1),
        ("eos_token_id", (3, 100)),
        ("eos_token_id", 2.0),
        ("pad_token_id", "0"),
        ("rope_scaling", "linear"),
        ("rope_scaling", {"rope_type": "longrope"}),
        ("rope_scaling", {"rope_type": "linear"}),
        ("rope_scaling", {"rope_type": "linear", "factor": 0}),
        ("rope_scaling", {"rope_type": "linear", "factor": "2"}),
        ("rope_scaling", {"rope_type": "linear", "factor": 2.0, "beta_fast": 1}),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        config(**{field: value})
    assert field in error.value.message


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 4.0,
            "high_freq_factor": 1.0,
            "original_max_position_embeddings": 64,
        },
    ],
)
def test_llama3_scaling_needs_all_its_keys_in_the_right_order(scaling: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="rope_scaling"):
        config(rope_scaling=scaling)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"head_dim": 2, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "head_dim"),
        ({"rope_theta": 1.0, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_theta"),
    ],
)
def test_a_scaling_whose_formula_breaks_down_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        config(**fields)


def test_the_older_key_type_of_rope_scaling_is_taken() -> None:
    assert config(rope_scaling={"type": "linear", "factor": 2.0}).rope_scaling == {
        "rope_type": "linear",
        "factor": 2.0,
    }


def test_a_factor_of_a_broken_kind_of_scaling_names_the_kind() -> None:
    with pytest.raises(ConfigError, match="rope_type"):
        config(rope_scaling={"rope_type": ["linear"], "factor": 2.0})


def test_default_scaling_is_no_scaling() -> None:
    assert config(rope_scaling={"rope_type": "default"}) == config()


def test_several_ends_are_kept_as_a_tuple() -> None:
    assert config(eos_token_id=[3, 4]).eos_token_ids == (3, 4)
    assert config(eos_token_id=3).eos_token_ids == (3,)
    assert config().eos_token_ids == ()


def test_changes_are_checked_and_derived_values_follow() -> None:
    wide = config().with_changes(hidden_size=128, num_attention_heads=8)
    assert (wide.head_dim, wide.num_key_value_heads) == (16, 8)
    assert config(head_dim=32).with_changes(hidden_size=128).head_dim == 32
    with pytest.raises(ConfigError, match="hidden_size"):
        config().with_changes(hidden_size=-1)


def test_a_change_of_no_field_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="n_layers") as error:
        config().with_changes(n_layers=3)
    assert "num_hidden_layers" in (error.value.hint or "")


SHAPES = st.fixed_dictionaries(
    {
        "vocab_size": st.integers(1, 200000),
        "hidden_size": st.integers(1, 300),
        "intermediate_size": st.integers(1, 500),
        "num_hidden_layers": st.integers(1, 5),
        "num_attention_heads": st.integers(1, 9),
        "num_key_value_heads": st.integers(0, 9),
        "head_dim": st.integers(0, 40),
        "tie_word_embeddings": st.booleans(),
        "attention_bias": st.booleans(),
        "mlp_bias": st.booleans(),
        "use_qk_norm": st.booleans(),
    }
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(fields=SHAPES)
def test_any_shape_is_a_whole_config_or_a_config_error(fields: dict[str, Any]) -> None:
    try:
        made = ModelConfig(**fields)
    except ConfigError:
        return
    assert made.num_attention_heads % made.num_key_value_heads == 0
    assert made.head_dim % 2 == 0
    assert made.count_parameters() > 0
    assert made.with_changes() == made
    again = {name: getattr(made, name) for name in FIELD_NAMES}
    assert ModelConfig(**again) == made


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.sampled_from(["rope_type", "type", "factor", "x"]), st.integers()),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(field=st.sampled_from(sorted(FIELD_NAMES)), value=ANYTHING)
def test_any_value_of_any_kind_is_taken_or_a_config_error(field: str, value: Any) -> None:
    try:
        made = config(**{field: value})
    except ConfigError:
        return
    assert ModelConfig(**{name: getattr(made, name) for name in FIELD_NAMES}) == made

"""The config.json that is written names an architecture that says the whole function."""

from __future__ import annotations

from typing import Any

import pytest

from llamita.config import ModelConfig
from llamita.errors import ConfigError
from llamita.formats.config_read import parse_config
from llamita.formats.config_write import config_to_json, model_type_of

SHAPE = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
QKV_ONLY = {"attention_bias": True, "attention_output_bias": False}

EXPRESSED: list[tuple[dict[str, Any], str]] = [
    ({}, "llama"),
    ({"attention_bias": True}, "llama"),
    ({"mlp_bias": True}, "llama"),
    ({"head_dim": 32}, "llama"),
    ({"sliding_window": 8}, "mistral"),
    ({"hidden_size": 66, "head_dim": 16}, "mistral"),
    (QKV_ONLY, "qwen2"),
    ({**QKV_ONLY, "sliding_window": 8}, "qwen2"),
    ({"use_qk_norm": True}, "qwen3"),
    ({"use_qk_norm": True, "attention_bias": True}, "qwen3"),
    ({"use_qk_norm": True, "sliding_window": 8}, "qwen3"),
]

UNSAID: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"use_qk_norm": True, "mlp_bias": True}, ("use_qk_norm", "mlp_bias")),
    ({"use_qk_norm": True, **QKV_ONLY}, ("use_qk_norm", "attention_output_bias")),
    ({"sliding_window": 8, "mlp_bias": True}, ("sliding_window", "mlp_bias")),
    ({"sliding_window": 8, "attention_bias": True}, ("sliding_window", "attention_bias")),
    ({**QKV_ONLY, "mlp_bias": True}, ("attention_bias", "mlp_bias")),
    ({"attention_output_bias": True}, ("attention_output_bias",)),
    ({"hidden_size": 66, "head_dim": 16, "attention_bias": True}, ("hidden_size",)),
]


@pytest.mark.parametrize(("fields", "model_type"), EXPRESSED)
def test_the_plainest_architecture_is_chosen_and_reads_back_the_same(
    fields: dict[str, Any], model_type: str
) -> None:
    config = ModelConfig(**{**SHAPE, **fields})
    assert model_type_of(config) == model_type
    assert parse_config(config_to_json(config, "float32")) == config


@pytest.mark.parametrize(("fields", "named"), UNSAID)
def test_what_no_architecture_says_is_refused_naming_the_fields(
    fields: dict[str, Any], named: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as error:
        config_to_json(ModelConfig(**{**SHAPE, **fields}), "float32")
    for name in named:
        assert name in error.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"tie_word_embeddings": False, "rms_norm_eps": 1e-5, "num_key_value_heads": 2},
        {"rope_theta": 5e5, "max_position_embeddings": 77, "initializer_range": 0.1},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 2.0,
                "original_max_position_embeddings": 50,
                "truncate": False,
            }
        },
        {"bos_token_id": 3, "eos_token_id": (4, 5), "pad_token_id": 6},
        {"attention_dropout": 0.1, "residual_dropout": 0.2},
        {"sliding_window": 9, "use_qk_norm": True},
    ],
)
def test_every_setting_survives_writing_and_reading(fields: dict[str, Any]) -> None:
    config = ModelConfig(**{**SHAPE, **fields})
    assert parse_config(config_to_json(config, "float32")) == config


def test_rope_is_written_in_the_older_spelling() -> None:
    scaling = {"rope_type": "linear", "factor": 2.0}
    content = config_to_json(ModelConfig(**SHAPE, rope_theta=5e5, rope_scaling=scaling), "bfloat16")
    assert content["rope_theta"] == 5e5
    assert content["rope_scaling"] == scaling
    assert "rope_parameters" not in content
    assert content["torch_dtype"] == "bfloat16"


def test_absent_token_ids_are_written_as_null_so_that_no_default_replaces_them() -> None:
    content = config_to_json(ModelConfig(**SHAPE), "float32")
    assert content["bos_token_id"] is None
    assert content["eos_token_id"] is None

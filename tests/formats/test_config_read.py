"""Every key of a foreign config.json is honoured, harmless, or refused by name with its value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError
from llamita.formats.config_read import parse_config, parse_overrides

SHAPE = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def raw(model_type: str = "llama", **keys: Any) -> dict[str, Any]:
    return {"model_type": model_type, **SHAPE, **keys}


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
def test_absent_keys_mean_what_transformers_takes_them_for(model_type: str) -> None:
    transformers = pytest.importorskip("transformers")
    least = {**SHAPE, "num_attention_heads": 32, "hidden_size": 4096}
    del least["num_key_value_heads"]
    theirs = transformers.AutoConfig.for_model(model_type, **least)
    ours = parse_config({"model_type": model_type, **least})
    for name in (
        "num_key_value_heads",
        "max_position_embeddings",
        "rms_norm_eps",
        "tie_word_embeddings",
        "attention_dropout",
        "initializer_range",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "sliding_window",
    ):
        assert getattr(ours, name) == getattr(theirs, name, None), name
    assert ours.head_dim == getattr(theirs, "head_dim", 4096 // 32)
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert ours.rope_scaling is None
    assert ours.attention_bias == (model_type == "qwen2")
    assert ours.attention_output_bias is False
    assert ours.use_qk_norm == (model_type == "qwen3")


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
def test_whatever_transformers_writes_is_read(model_type: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(model_type, **SHAPE)
    for written in (config.to_dict(), json.loads(config.to_json_string(use_diff=False))):
        assert parse_config(written).hidden_size == 64


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "type": "llama3", **LLAMA3}},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **LLAMA3}},
        {"rope_parameters": {"rope_theta": 5e5, "type": "llama3", **LLAMA3}},
        {"rope_theta": 5e5, "rope_parameters": {"rope_type": "llama3", **LLAMA3}},
        {
            "rope_theta": 500000,
            "rope_scaling": {"rope_type": "llama3", **LLAMA3},
            "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **LLAMA3},
        },
    ],
)
def test_rope_is_read_from_both_spellings(keys: dict[str, Any]) -> None:
    config = parse_config(raw(**keys))
    assert config.rope_theta == 500000
    assert config.rope_scaling == {"rope_type": "llama3", **LLAMA3}


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, "rope_theta"),
        (
            {
                "rope_scaling": {"type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_type": "linear", "factor": 4.0},
            },
            "rope_parameters",
        ),
        ({"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2.0}}, "contradict"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "layer type"),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, "longrope"),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [1]}}, "mrope"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "part of"),
        ({"rope_scaling": {"factor": 2.0}}, "lacks rope_type"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        (
            {
                "max_position_embeddings": 4096,
                "rope_scaling": {
                    "type": "dynamic",
                    "factor": 2.0,
                    "original_max_position_embeddings": 2048,
                },
            },
            "original_max_position_embeddings",
        ),
    ],
)
def test_rope_settings_that_contradict_or_are_not_computed_are_refused(
    keys: dict[str, Any], named: str
) -> None:
    with pytest.raises((CheckpointError, ConfigError), match=named):
        parse_config(raw(**keys))


@pytest.mark.parametrize("kind", ["yarn", "llama3"])
def test_the_pretraining_length_outside_the_rope_table_is_read(kind: str) -> None:
    table = {"rope_type": kind, **LLAMA3}
    if kind == "yarn":
        table = {"rope_type": kind, "factor": 4.0}
    table.pop("original_max_position_embeddings", None)
    key = "original_max_position_embeddings"
    outside = parse_config(raw(rope_scaling=table, **{key: 1024}))
    absent = parse_config(raw(rope_scaling=table, max_position_embeddings=4096))
    assert outside.rope_scaling is not None
    assert outside.rope_scaling[key] == 1024
    assert absent.rope_scaling is not None
    assert absent.rope_scaling[key] == 4096


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("hidden_act", "relu2"),
        ("partial_rotary_factor", 0.5),
        ("no_rope_layers", [1, 1, 0]),
        ("no_rope_layer_interval", 4),
        ("logit_scale", 0.0625),
        ("logits_scaling", 8.0),
        ("residual_multiplier", 0.22),
        ("embedding_multiplier", 12.0),
        ("attention_multiplier", 0.015625),
        ("final_logit_softcapping", 30.0),
        ("attn_logit_softcapping", 50.0),
        ("query_pre_attn_scalar", 256),
        ("num_local_experts", 8),
        ("num_experts_per_tok", 2),
        ("quantization_config", {"quant_method": "gptq", "bits": 4}),
        ("is_causal", False),
        ("use_bidirectional_attention", True),
        ("use_qk_norm", True),
        ("sliding_window", 4096),
        ("use_sliding_window", True),
        ("attention_chunk_size", 8192),
        ("clip_qkv", 8.0),
        ("a_key_of_tomorrow", 0),
        ("layer_types", ["full_attention", "sliding_attention", "full_attention"]),
        ("layer_types", ["sliding_attention"] * 3),
        ("layer_types", ["full_attention"] * 2),
        ("layer_types", ["linear_attention"] * 3),
    ],
)
def test_a_key_that_changes_the_function_is_refused_by_name_with_its_value(
    key: str, value: Any
) -> None:
    with pytest.raises(CheckpointError) as error:
        parse_config(raw(**{key: value}))
    assert f"{key} = {json.dumps(value)[:40]}" in error.value.message
    assert f"--override {key}=null" in (error.value.hint or "")
    assert parse_config(raw(**{key: value}), {key: None}) == parse_config(raw())


@pytest.mark.parametrize(
    "keys",
    [
        {"hidden_act": "silu", "pretraining_tp": 2, "use_cache": False, "torch_dtype": "bfloat16"},
        {"_name_or_path": "x", "transformers_version": "4.1", "unsloth_fixed": True},
        {"auto_map": {"AutoConfig": "x"}, "is_llama_config": True, "rope_interleaved": False},
        {"a_key_of_tomorrow": None, "another": [], "a_third": {}, "a_fourth": "", "last": False},
        {"no_rope_layers": [1, 1, 1], "layer_types": ["full_attention"] * 3},
        {"partial_rotary_factor": 1.0, "logits_scaling": 1, "quantization_config": None},
        {"temperature": 0.6, "max_length": 4096, "id2label": {"0": "LABEL_0"}},
        {"max_window_layers": 28, "use_sliding_window": False},
    ],
)
def test_harmless_and_neutral_keys_change_nothing(keys: dict[str, Any]) -> None:
    assert parse_config(raw(**keys)) == parse_config(raw())


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("keys", "window"),
    [
        ({"sliding_window": 8}, None),
        ({"sliding_window": 8, "use_sliding_window": False, "max_window_layers": 1}, None),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 0}, 8),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3}, None),
        ({"sliding_window": 8, "use_sliding_window": True}, None),
        (
            {
                "sliding_window": 8,
                "use_sliding_window": True,
                "max_window_layers": 1,
                "layer_types": ["sliding_attention"] * 3,
            },
            8,
        ),
    ],
)
def test_qwen_windows_count_when_they_are_used_and_all_layers_have_them(
    model_type: str, keys: dict[str, Any], window: int | None
) -> None:
    assert parse_config(raw(model_type, **keys)).sliding_window == window


def test_a_qwen_window_on_some_layers_is_refused() -> None:
    keys = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}
    with pytest.raises(CheckpointError, match="max_window_layers = 1"):
        parse_config(raw("qwen2", **keys))
    assert parse_config(raw("qwen2", **keys), {"sliding_window": None}).sliding_window is None
    assert parse_config(raw("qwen2", **keys), {"sliding_window": 8}).sliding_window == 8


def test_qwen2_biases_are_q_k_and_v_and_cannot_be_switched_off_unseen() -> None:
    config = parse_config(raw("qwen2"))
    assert (config.attention_bias, config.attention_output_bias) == (True, False)
    with pytest.raises(CheckpointError, match="attention_bias = false"):
        parse_config(raw("qwen2", attention_bias=False))


def test_a_null_sliding_window_of_mistral_is_none_and_an_absent_one_is_the_default() -> None:
    assert parse_config(raw("mistral", sliding_window=None)).sliding_window is None
    assert parse_config(raw("mistral")).sliding_window == 4096


def test_null_token_ids_are_none_and_not_the_default() -> None:
    config = parse_config(raw(bos_token_id=None, eos_token_id=None))
    assert (config.bos_token_id, config.eos_token_id) == (None, None)
    assert parse_config(raw()).eos_token_id == 2


def test_a_pad_token_of_minus_one_is_none() -> None:
    assert parse_config(raw(pad_token_id=-1)).pad_token_id is None


def test_token_ids_that_the_config_lacks_come_from_the_generation_config() -> None:
    generation = {"eos_token_id": [5, 6], "bos_token_id": 7}
    config = parse_config(raw(bos_token_id=1), generation=generation)
    assert (config.bos_token_id, config.eos_token_id) == (1, (5, 6))


@pytest.mark.parametrize("model_type", ["gpt2", "mixtral", "gemma2", "smollm3"])
def test_another_model_type_is_refused_with_those_that_are_read(model_type: str) -> None:
    with pytest.raises(CheckpointError, match=f"{model_type}.*llama, mistral, qwen2, qwen3"):
        parse_config(raw(model_type))


def test_a_llama_under_another_name_is_read_when_told_so() -> None:
    config = raw("aquila", architectures=["AquilaForCausalLM"])
    overrides = {"model_type": "llama", "architectures": None}
    assert parse_config(config, overrides) == parse_config(raw())


def test_an_architecture_that_is_no_language_model_of_the_type_is_refused() -> None:
    with pytest.raises(CheckpointError, match="LlamaForSequenceClassification"):
        parse_config(raw(architectures=["LlamaForSequenceClassification"]))


def test_the_model_type_may_be_told_by_the_architecture() -> None:
    config = raw(architectures=["Qwen3ForCausalLM"])
    del config["model_type"]
    assert parse_config(config).use_qk_norm


def test_missing_keys_are_named_all_at_once() -> None:
    config = raw()
    del config["vocab_size"], config["hidden_size"]
    with pytest.raises(CheckpointError, match="lacks vocab_size, hidden_size"):
        parse_config(config)
    overrides = {"vocab_size": 1000, "hidden_size": 64}
    assert parse_config(config, overrides) == parse_config(raw())


@pytest.mark.parametrize(
    ("override", "field", "value"),
    [
        ("rope_theta=500000", "rope_theta", 500000),
        ("num_key_value_heads=4", "num_key_value_heads", 4),
        ("num_key_value_heads=null", "num_key_value_heads", 4),
        ("head_dim=32", "head_dim", 32),
        ("sliding_window=128", "sliding_window", 128),
        ("tie_word_embeddings=true", "tie_word_embeddings", True),
        ("use_qk_norm=true", "use_qk_norm", True),
        ("eos_token_id=[3,4]", "eos_token_id", (3, 4)),
        ("eos_token_id=null", "eos_token_id", None),
        ('rope_scaling={"type":"linear","factor":2}', "rope_type", "linear"),
        ("rope_scaling=null", "rope_type", "default"),
        ("attention_bias=true", "attention_output_bias", True),
    ],
)
def test_an_override_wins_over_the_file(override: str, field: str, value: Any) -> None:
    config = raw(
        rope_parameters={"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0},
        eos_token_id=9,
        num_key_value_heads=1,
    )
    parsed = parse_config(config, parse_overrides([override]))
    assert getattr(parsed, field) == value
    if field != "rope_theta":
        assert parsed.rope_theta == 1e6


def test_an_override_of_nothing_known_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"rop_theta[\s\S]*rope_theta"):
        parse_config(raw(), {"rop_theta": 5})


@pytest.mark.parametrize("item", ["rope_theta", "=5", ""])
def test_an_override_without_key_and_value_is_refused(item: str) -> None:
    with pytest.raises(ConfigError, match="key=value"):
        parse_overrides([item])


def test_override_values_are_json_or_else_text() -> None:
    items = ["a=1", "b=1e-5", "c=null", "d=true", "e=silu", "f=[1, 2]", "g=x=y"]
    assert parse_overrides(items) == {
        "a": 1,
        "b": 1e-5,
        "c": None,
        "d": True,
        "e": "silu",
        "f": [1, 2],
        "g": "x=y",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", "three"),
        ("vocab_size", -1),
        ("hidden_size", 3.5),
        ("rms_norm_eps", "1e-5"),
        ("tie_word_embeddings", "yes"),
        ("num_key_value_heads", 3),
        ("eos_token_id", 1000),
        ("layer_types", "full_attention"),
        ("rope_theta", [1]),
        ("architectures", "LlamaForCausalLM"),
        ("model_type", ["llama"]),
    ],
)
@pytest.mark.parametrize("model_type", ["llama", "qwen2"])
def test_a_value_of_a_wrong_kind_is_an_error_that_names_the_key(
    model_type: str, key: str, value: Any
) -> None:
    with pytest.raises((CheckpointError, ConfigError), match=key):
        parse_config({**raw(model_type), key: value})


def test_the_config_of_llama_3_2_is_read_in_full() -> None:
    published = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009],
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "initializer_range": 0.02,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0.dev0",
        "use_cache": True,
        "vocab_size": 128256,
    }
    config = parse_config(published)
    assert config == ModelConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=131072,
        rope_theta=500000.0,
        rope_scaling=published["rope_scaling"],
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=128000,
        eos_token_id=(128001, 128008, 128009),
    )
    assert config.count_parameters() == 1_235_814_400

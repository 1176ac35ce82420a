"""The HuggingFace model types that are this one Transformer, and every key of theirs in one table.

A key of `config.json` is honoured, known to be harmless, or stands for something the Transformer
does not compute. The tables say which; `config_read.py` acts on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Family:
    """What one `model_type` means beyond the common keys.

    Attributes:
        architecture: the class name under `architectures`.
        defaults: values of `ModelConfig` fields whose key the file leaves out, as the family's
            reference configuration class has them.
        always: `ModelConfig` fields that the family fixes; no key changes them.
        keys: keys honoured by this family alone.
        only: keys this family does not read, with the values that say what it does anyway.
    """

    architecture: str
    defaults: dict[str, Any]
    always: dict[str, Any] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    only: dict[str, tuple[Any, ...]] = field(default_factory=dict)


_QWEN_WINDOW_KEYS = frozenset({"sliding_window", "use_sliding_window", "max_window_layers"})

FAMILIES: dict[str, Family] = {
    "llama": Family(
        "LlamaForCausalLM",
        defaults={"max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2},
        keys=frozenset({"attention_bias", "mlp_bias"}),
    ),
    "mistral": Family(
        "MistralForCausalLM",
        defaults={
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "sliding_window": 4096,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        keys=frozenset({"sliding_window"}),
        only={"use_sliding_window": (True,)},
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM",
        defaults={
            "num_key_value_heads": 32,
            "max_position_embeddings": 32768,
            "sliding_window": 4096,
        },
        always={"attention_bias": True, "attention_output_bias": False},
        keys=_QWEN_WINDOW_KEYS,
        only={"attention_bias": (True,), "qkv_bias": (True,)},
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        defaults={
            "num_key_value_heads": 32,
            "head_dim": 128,
            "max_position_embeddings": 32768,
            "sliding_window": 4096,
        },
        always={"use_qk_norm": True},
        keys=_QWEN_WINDOW_KEYS | {"attention_bias"},
        only={"use_qk_norm": (True,)},
    ),
}

COMMON_DEFAULTS: dict[str, Any] = {
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
}

REQUIRED_KEYS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)

COPIED_KEYS = (
    *REQUIRED_KEYS,
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "tie_word_embeddings",
    "attention_dropout",
    "residual_dropout",
    "initializer_range",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)

ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters", "original_max_position_embeddings")
"""Read by `rope_json.py`, in the older and the newer spelling."""

TOKEN_ID_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")
NULL_HAS_MEANING = frozenset({"sliding_window", "rope_scaling", *TOKEN_ID_KEYS})
"""Keys whose null says "none"."""
NULL_IS_DERIVED = frozenset({"num_key_value_heads", "head_dim"})
"""Keys whose null says "work it out from the others". Any other null is the same as no key."""

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "is_causal": (True,),
    "use_rope": (True,),
    "partial_rotary_factor": (1.0,),
    "rotary_pct": (1.0,),
    "logit_scale": (1.0,),
    "logits_scaling": (1.0,),
    "residual_multiplier": (1.0,),
    "embedding_multiplier": (1.0,),
    "scale_emb": (1.0,),
    "embd_pdrop": (0.0,),
    "resid_pdrop": (0.0,),
    "hidden_dropout": (0.0,),
    "num_experts": (0,),
    "num_local_experts": (0, 1),
    "first_k_dense_replace": (0,),
    "num_nextn_predict_layers": (0,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
}
"""Keys that change the function, with the values at which they do not."""

_HARMLESS = """
architectures model_type layer_types no_rope_layers _name_or_path name_or_path _commit_hash
transformers_version torch_dtype dtype auto_map use_cache pretraining_tp unsloth_fixed
unsloth_version is_llama_config is_decoder tokenizer_class output_attentions
output_hidden_states return_dict torchscript use_return_dict chunk_size_feed_forward
finetuning_task id2label label2id num_labels problem_type task_specific_params
tie_encoder_decoder tie_last_hidden_states prefix decoder_start_token_id sep_token_id
cross_attention_hidden_size pruned_heads tf_legacy_loss use_bfloat16 attn_implementation
_attn_implementation _attn_implementation_autoset _attn_implementation_internal
_flash_attn_2_enabled _experts_implementation_internal experts_implementation
use_flash_attention use_flash_attn gradient_checkpointing max_sequence_length model_max_length
transformers.js_config bos_token eos_token pad_token unk_token_id vocab_file
assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens
diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty
forced_bos_token_id forced_eos_token_id length_penalty max_length min_length
no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups
num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty
return_dict_in_generate suppress_tokens target_lookbehind temperature top_k top_p typical_p
"""
HARMLESS_KEYS = frozenset(_HARMLESS.split())
"""Bookkeeping, and settings of generation and loading: none of them moves a logit.

`layer_types` and `no_rope_layers`, in here too, are checked on their own.
"""

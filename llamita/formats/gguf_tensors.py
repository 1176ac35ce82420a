"""The tensors of a GGUF file: a table for each architecture that is read and written."""

from __future__ import annotations

from dataclasses import dataclass

from llamita.formats.key_map import SAME, InterleavedHeads, Rule, Transform

EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"
FREQUENCY_FACTORS = "rope_freqs.weight"
"""Divisors of the rotary frequencies [D/2]: how Llama 3's scaling is stored."""


def _rules(queries: Transform = SAME, keys: Transform = SAME) -> tuple[Rule, ...]:
    layer, block = "model.layers.{layer}", "blk.{layer}"
    attention = (
        ("q_proj", "attn_q", queries),
        ("k_proj", "attn_k", keys),
        ("v_proj", "attn_v", SAME),
        ("o_proj", "attn_output", SAME),
    )
    rules = [
        Rule("model.embed_tokens.weight", EMBEDDING),
        Rule(f"{layer}.input_layernorm.weight", f"{block}.attn_norm.weight"),
    ]
    for leaf in ("weight", "bias"):
        rules += [
            Rule(f"{layer}.self_attn.{native}.{leaf}", f"{block}.{foreign}.{leaf}", transform)
            for native, foreign, transform in attention
        ]
    rules.append(Rule(f"{layer}.post_attention_layernorm.weight", f"{block}.ffn_norm.weight"))
    for leaf in ("weight", "bias"):
        rules += [
            Rule(f"{layer}.mlp.{part}_proj.{leaf}", f"{block}.ffn_{part}.{leaf}")
            for part in ("gate", "up", "down")
        ]
    rules.append(Rule("model.norm.weight", "output_norm.weight"))
    rules.append(Rule("lm_head.weight", OUTPUT))
    return tuple(rules)


_QK_NORM = (
    Rule("model.layers.{layer}.self_attn.q_norm.weight", "blk.{layer}.attn_q_norm.weight"),
    Rule("model.layers.{layer}.self_attn.k_norm.weight", "blk.{layer}.attn_k_norm.weight"),
)


@dataclass(frozen=True)
class Architecture:
    """What llama.cpp understands by one value of `general.architecture`.

    Attributes:
        rules: its tensors. llama.cpp's `llama` turns neighbouring pairs, its `qwen2` and `qwen3`
            split halves as llamita does.
        has_frequency_factors: whether it looks at `rope_freqs.weight`.
    """

    name: str
    rules: tuple[Rule, ...]
    has_frequency_factors: bool = False


LLAMA = Architecture(
    "llama",
    _rules(InterleavedHeads("num_attention_heads"), InterleavedHeads("num_key_value_heads")),
    has_frequency_factors=True,
)
QWEN2 = Architecture("qwen2", _rules())
QWEN3 = Architecture("qwen3", _rules() + _QK_NORM)
ARCHITECTURES = {architecture.name: architecture for architecture in (LLAMA, QWEN2, QWEN3)}

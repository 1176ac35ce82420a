"""`compare` says yes to the same model only, and names what differs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from llamita.config import ModelConfig
from llamita.inference.lm import LM
from llamita.model.transformer import Transformer
from llamita.shipping.verify import compare
from llamita.shipping.verify_tokenizers import PAGE
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.train import train_tokenizer

SENTENCES = PAGE.splitlines() * 8


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(SENTENCES, "bpe:320")


def make(vocabulary: int = 320, **fields: Any) -> Transformer:
    """Logits of a scale near 1."""
    shape = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
    }
    model = Transformer(ModelConfig(vocabulary, **{**shape, **fields})).initialize(0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6.0)
    return model


def changed(model: Transformer, change: Callable[[Transformer], Any]) -> Transformer:
    other = copy.deepcopy(model)
    with torch.no_grad():
        change(other)
    return other


def test_a_model_is_the_same_as_itself(tokenizer: Tokenizer) -> None:
    comparison = compare(LM(make(), tokenizer), LM(make(), tokenizer))
    assert comparison.same
    assert comparison.max_logit_gap == 0.0
    assert comparison.greedy_equal is True
    assert comparison.token_ids_equal is True
    assert comparison.positions >= 64
    assert comparison.differences == comparison.notes == []


def test_models_without_tokenizers_are_compared_on_random_ids() -> None:
    comparison = compare(LM(make()), LM(make()))
    assert comparison.same
    assert comparison.token_ids_equal is None
    assert comparison.positions >= 64


@pytest.mark.parametrize("context", [2, 8, 20])
def test_a_short_context_still_gives_64_positions(context: int) -> None:
    model = make(max_position_embeddings=context)
    comparison = compare(LM(model), LM(copy.deepcopy(model)))
    assert comparison.same
    assert comparison.positions >= 64


def swap_pairs(model: Transformer) -> None:
    """Rotary rows interleaved, as a conversion without the permutation leaves them."""
    weight = model.model.layers[0].self_attn.k_proj.weight
    weight.copy_(weight.view(2, 2, 4, 32).transpose(1, 2).reshape(16, 32))


FAULTS: dict[str, Callable[[Transformer], Any]] = {
    "k rows not permuted": swap_pairs,
    "one norm weight": lambda m: m.model.norm.weight[3].mul_(1.001),
    "gate and up swapped": lambda m: m.model.layers[1].mlp.gate_proj.weight.copy_(
        m.model.layers[1].mlp.up_proj.weight
    ),
    "rounded to bfloat16": lambda m: [p.copy_(p.bfloat16().float()) for p in m.parameters()],
    "eps": lambda m: [
        setattr(x, "eps", 1e-3) for x in m.modules() if x.__class__.__name__ == "RMSNorm"
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_conversion_is_another_model(fault: str, tokenizer: Tokenizer) -> None:
    model = make()
    other = changed(model, FAULTS[fault])
    comparison = compare(LM(model, tokenizer), LM(other, tokenizer))
    assert not comparison.same
    assert comparison.max_logit_gap is not None
    assert comparison.max_logit_gap > 2e-5
    assert "logits differ" in comparison.differences[0]


def test_a_fault_in_a_model_of_tiny_logits_is_seen_too() -> None:
    model = changed(make(tie_word_embeddings=False), lambda m: m.lm_head.weight.mul_(1e-5))
    comparison = compare(LM(model), LM(changed(model, swap_pairs)))
    assert comparison.max_logit_gap is not None
    assert comparison.max_logit_gap < 2e-5
    assert not comparison.same


def test_the_embedding_of_a_token_in_no_probe_is_compared_too() -> None:
    model = make(vocabulary=5000, tie_word_embeddings=False)
    for token in range(4900, 5000):
        other = changed(model, lambda m, t=token: m.model.embed_tokens.weight[t].add_(1.0))
        comparison = compare(LM(model), LM(other))
        if comparison.max_logit_gap == 0:
            break
    assert not comparison.same
    assert f"token {token}" in comparison.differences[0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_models_that_are_not_finite_are_never_the_same(value: float) -> None:
    broken = changed(make(), lambda m: m.model.norm.weight[0].fill_(value))
    for a, b in ((broken, make()), (make(), broken), (broken, copy.deepcopy(broken))):
        comparison = compare(LM(a), LM(b))
        assert not comparison.same
        assert comparison.max_logit_gap is None
        assert "finite" in comparison.differences[0]


def test_a_window_or_scaling_that_acts_beyond_the_probe_is_compared_as_set() -> None:
    long = {"max_position_embeddings": 4096}
    dynamic = {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    for change in ({"sliding_window": 1000}, dynamic):
        comparison = compare(LM(make(**long)), LM(make(**long, **change)))
        assert comparison.max_logit_gap == 0.0
        assert not comparison.same
        assert next(iter(change)) in comparison.differences[0]


def test_a_window_as_wide_as_the_context_is_none() -> None:
    comparison = compare(LM(make()), LM(make(sliding_window=128)))
    assert comparison.same
    assert "sliding_window" in comparison.notes[0]


def test_settings_that_move_no_logit_are_notes() -> None:
    comparison = compare(LM(make()), LM(make(eos_token_id=5)))
    assert comparison.same
    assert comparison.notes == [
        "eos_token_id is None in A and 5 in B.",
        "the stop tokens are () in A and (5,) in B.",
    ]


def test_a_lost_stop_token_is_a_difference_an_added_one_a_note() -> None:
    model = make()
    more, less = (LM(model, None, {"eos_token_id": ids}) for ids in ([3, 4], [3]))
    comparison = compare(more, less)
    assert not comparison.same
    assert comparison.differences == ["the stop tokens are (3, 4) in A and (3,) in B."]
    assert compare(more, less, lost_stops={4}).same
    comparison = compare(less, more)
    assert comparison.same
    assert comparison.notes == ["the stop tokens are (3,) in A and (3, 4) in B."]


def test_another_vocabulary_is_named_and_no_gap_is_made_up() -> None:
    comparison = compare(LM(make(320)), LM(make(330)))
    assert not comparison.same
    assert comparison.max_logit_gap is None
    assert comparison.greedy_equal is None
    assert comparison.differences == ["vocab_size is 320 in A and 330 in B."]


def test_another_shape_is_named() -> None:
    comparison = compare(LM(make()), LM(make(num_hidden_layers=3)))
    assert not comparison.same
    assert "num_hidden_layers is 2 in A and 3 in B." in comparison.notes


def test_another_tokenization_is_another_model(tokenizer: Tokenizer) -> None:
    other = train_tokenizer(["something else entirely " * 4, *SENTENCES[:40]], "bpe:320")
    model = make()
    comparison = compare(LM(model, tokenizer), LM(copy.deepcopy(model), other))
    assert comparison.max_logit_gap == 0.0
    assert comparison.token_ids_equal is False
    assert not comparison.same


def test_a_tokenizer_on_one_side_only_is_a_difference(tokenizer: Tokenizer) -> None:
    comparison = compare(LM(make(), tokenizer), LM(make()))
    assert comparison.token_ids_equal is False
    assert "only A has a tokenizer." in comparison.differences


def test_character_tokenizers_that_refuse_the_same_text_are_equal() -> None:
    characters = train_tokenizer(["abc def"], "char")
    model = make(characters.vocab_size)
    comparison = compare(LM(model, characters), LM(copy.deepcopy(model), characters))
    assert comparison.same


def test_a_wider_tolerance_lets_rounding_pass_and_no_fault(tokenizer: Tokenizer) -> None:
    model = make()
    rounded = changed(model, FAULTS["rounded to bfloat16"])
    assert compare(LM(model, tokenizer), LM(rounded, tokenizer), tolerance=0.2).same
    wrong = changed(rounded, swap_pairs)
    assert not compare(LM(model, tokenizer), LM(wrong, tokenizer), tolerance=0.2).same


def test_greedy_tokens_that_part_in_a_near_tie_are_a_note() -> None:
    def tie(model: Transformer) -> None:
        head = model.lm_head.weight
        head[1::2].copy_(head[0::2] * (1 + 1e-7))

    def untie(model: Transformer) -> None:
        head = model.lm_head.weight
        even = head[0::2].clone()
        head[0::2].copy_(head[1::2])
        head[1::2].copy_(even)

    model = changed(make(tie_word_embeddings=False), tie)
    comparison = compare(LM(model), LM(changed(model, untie)))
    assert comparison.greedy_equal is False
    assert comparison.same
    assert "greedy tokens part" in comparison.notes[0]

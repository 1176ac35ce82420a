"""The one model: its masks, its fresh weights, its tying and its counts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from llamita.config import ModelConfig
from llamita.formats.checkpoint import build_model
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer


@torch.no_grad()
def test_a_token_sees_itself_and_what_is_before_it_only(make_model, ids) -> None:
    model = make_model()
    changed = ids.clone()
    changed[:, 20] = (changed[:, 20] + 1) % 53
    before, after = model(ids), model(changed)
    assert torch.equal(before[:, :20], after[:, :20])
    assert ((before[:, 20:] - after[:, 20:]).abs().amax((0, 2)) > 1e-3).all()


@torch.no_grad()
def test_a_document_does_not_see_the_one_packed_before_it(make_model, ids) -> None:
    model = make_model()
    documents = torch.tensor([0] * 15 + [1] * 25).expand(3, 40)
    positions = torch.cat((torch.arange(15), torch.arange(25))).expand(3, 40)
    changed = ids.clone()
    changed[:, :15] = (changed[:, :15] + 7) % 53
    before = model(ids, positions, document_ids=documents)
    after = model(changed, positions, document_ids=documents)
    assert torch.equal(before[:, 15:], after[:, 15:])
    assert (before[:, 15:] - model(ids[:, 15:])).abs().max() <= 1e-5
    assert (before[:, :15] - model(ids[:, :15])).abs().max() <= 1e-5


@torch.no_grad()
def test_without_a_document_mask_packed_documents_do_see_each_other(make_model, ids) -> None:
    model = make_model()
    changed = ids.clone()
    changed[:, :15] = (changed[:, :15] + 7) % 53
    assert (model(ids)[:, 15:] - model(changed)[:, 15:]).abs().max() > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("window", [1, 4, 9])
def test_a_sliding_window_reaches_exactly_as_far_as_it_says(make_model, ids, window: int) -> None:
    model = make_model(sliding_window=window, num_hidden_layers=1)
    changed = ids.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 53
    moved = (model(ids) - model(changed)).abs().amax((0, 2)) > 0
    assert moved.nonzero().flatten().tolist() == list(range(10, 10 + window))


@torch.no_grad()
def test_a_sliding_window_and_a_document_mask_hold_together(make_model, ids) -> None:
    model = make_model(sliding_window=4)
    documents = torch.tensor([0] * 15 + [1] * 25).expand(3, 40)
    positions = torch.cat((torch.arange(15), torch.arange(25))).expand(3, 40)
    packed = model(ids, positions, document_ids=documents)[:, 15:]
    assert (packed - model(ids[:, 15:])).abs().max() <= 1e-5


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("vocabulary", [300, 8192, 32000])
@pytest.mark.parametrize("width", [32, 128, 512])
def test_a_fresh_model_starts_within_0_3_of_the_log_of_its_vocabulary(
    width: int, vocabulary: int, tied: bool
) -> None:
    config = ModelConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=3,
        num_attention_heads=4,
        tie_word_embeddings=tied,
    )
    model = Transformer(config).initialize(seed=0)
    # Text repeats itself, so its next token is often one that was just read.
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(0, 40, (2, 64), generator=generator) * (vocabulary // 40)
    with torch.no_grad():
        logits = model(ids)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert abs(float(loss) - math.log(vocabulary)) < 0.3


def test_the_same_seed_draws_the_same_weights_and_another_draws_others(make_model) -> None:
    model = make_model()
    first = [p.clone() for p in model.initialize(1).parameters()]
    second = [p.clone() for p in model.initialize(1).parameters()]
    other = [p.clone() for p in model.initialize(2).parameters()]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], other[0])


def is_one_storage(model: Transformer) -> bool:
    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
    return embedding is head and embedding.data_ptr() == head.data_ptr()


def test_tying_is_one_storage_after_load_training_save_and_load(make_model, ids, tmp_path) -> None:
    model = make_model(tie_word_embeddings=True)
    assert is_one_storage(model)
    save_model_directory(model, tmp_path / "first")
    model = build_model(load_checkpoint(tmp_path / "first"))
    assert is_one_storage(model)

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    optimizer.step()
    assert is_one_storage(model)

    save_model_directory(model, tmp_path / "second")
    again = build_model(load_checkpoint(tmp_path / "second"))
    assert is_one_storage(again)
    with torch.no_grad():
        assert torch.equal(again(ids), model(ids))
        assert not torch.equal(again(ids), build_model(load_checkpoint(tmp_path / "first"))(ids))


def test_an_untied_head_is_its_own_storage_after_load(make_model, tmp_path) -> None:
    model = make_model(tie_word_embeddings=False)
    save_model_directory(model, tmp_path)
    again = build_model(load_checkpoint(tmp_path))
    assert again.lm_head.weight.data_ptr() != again.model.embed_tokens.weight.data_ptr()
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)


def test_rotary_tables_stay_float32_in_a_bfloat16_model(make_model) -> None:
    model = make_model(max_position_embeddings=8192).to(torch.bfloat16)
    positions = torch.arange(8192)[None]
    cos, sin = model.rope.tables(positions)
    assert cos.dtype == sin.dtype == torch.float32
    exact = (positions[0].double()[:, None] * model.rope.inverse_frequencies.double()).cos()
    assert (cos[0, :, :4].double() - exact).abs().max() < 2e-3
    assert not any("rope" in name for name in model.state_dict())
    assert model(torch.zeros(1, 4, dtype=torch.long)).dtype == torch.bfloat16


def test_dropout_acts_in_training_only(make_model, ids) -> None:
    model = make_model(residual_dropout=0.5, attention_dropout=0.5)
    with torch.no_grad():
        assert torch.equal(model(ids), model(ids))
        model.train()
        assert not torch.equal(model(ids), model(ids))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tie_word_embeddings": False},
        {"attention_bias": True},
        {"attention_bias": True, "attention_output_bias": False},
        {"mlp_bias": True, "use_qk_norm": True},
        {"head_dim": 14, "num_key_value_heads": 1},
    ],
)
def test_count_parameters_is_what_the_model_holds(make_model, fields: dict[str, Any]) -> None:
    model = make_model(**fields)
    assert model.config.count_parameters() == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [
        ((32000, 4096, 11008, 32, 32, 32, 128, False), 6_738_415_616),
        ((16000, 1024, 2752, 24, 16, 16, 64, True), 319_996_928),
        ((16000, 1536, 4096, 32, 24, 24, 64, True), 930_645_504),
    ],
    ids=["Llama 7B", "ArmGPT xlarge", "ArmGPT giant"],
)
def test_count_parameters_of_known_models(shape: tuple[int, ...], parameters: int) -> None:
    vocabulary, width, inner, layers, heads, kv_heads, head_dim, tied = shape
    config = ModelConfig(
        vocabulary, width, inner, layers, heads, kv_heads, head_dim, tie_word_embeddings=bool(tied)
    )
    assert config.count_parameters() == parameters


def test_count_parameters_of_hermes_1b() -> None:
    config = ModelConfig(32000, 2048, 5632, 22, 32, 4, 64)
    assert round(config.count_parameters() / 1e6, 1) == 1034.5

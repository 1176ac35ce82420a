"""Logits through the cache are those of the full pass, however the tokens arrive."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamita.model.kv_cache import KVCache
from llamita.model.transformer import Transformer

TOLERANCE = 1e-5
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "qk norm and biases": {"use_qk_norm": True, "attention_bias": True, "mlp_bias": True},
    "window": {"sliding_window": 6},
    "one kv head": {"num_key_value_heads": 1},
    "llama3 rope": {"rope_scaling": LLAMA3},
    "dynamic rope": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    "dynamic rope past its context": {
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
        "max_position_embeddings": 16,
    },
    "yarn rope": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
}


@torch.no_grad()
def through_cache(
    model: Transformer, ids: torch.Tensor, chunks: list[int], *, tell_length: bool = True
) -> torch.Tensor:
    """Logits [B, T, V] of `ids` read in chunks of these lengths."""
    batch, time = ids.shape
    cache = KVCache(model.config, batch, time)
    lengths = torch.full((batch,), time) if tell_length else None
    parts, start = [], 0
    for length in chunks:
        positions = torch.arange(start, start + length).expand(batch, length)
        chunk = ids[:, start : start + length]
        parts.append(model(chunk, positions, cache, row_lengths=lengths))
        start += length
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("kind", KINDS)
def test_one_token_at_a_time_equals_the_full_pass(make_model, ids, kind: str) -> None:
    model = make_model(**KINDS[kind])
    with torch.no_grad():
        full = model(ids)
    assert (through_cache(model, ids, [1] * ids.shape[1]) - full).abs().max() <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(cuts=st.sets(st.integers(1, 39)))
def test_any_split_into_chunks_equals_the_full_pass(
    make_model, ids, kind: str, cuts: set[int]
) -> None:
    model = make_model(**KINDS[kind])
    borders = [0, *sorted(cuts), ids.shape[1]]
    chunks = [end - start for start, end in itertools.pairwise(borders)]
    with torch.no_grad():
        full = model(ids)
    assert (through_cache(model, ids, chunks) - full).abs().max() <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_ragged_right_padded_batch_equals_each_row_alone(make_model, ids, kind: str) -> None:
    model = make_model(**KINDS[kind])
    lengths = torch.tensor([17, 5, 11])
    steps = 12
    cache = KVCache(model.config, 3, 40)
    prompt = ids[:, : int(lengths.max())].clone()
    for row, length in enumerate(lengths):
        prompt[row, length:] = 0
    positions = torch.arange(prompt.shape[1]).expand(prompt.shape)
    whole = lengths + steps
    got = [model(prompt, positions, cache, last_positions=lengths - 1, row_lengths=whole)]
    for step in range(steps):
        at = (lengths + step)[:, None]
        got.append(model(ids.gather(1, at), at, cache, row_lengths=whole))
    got = torch.cat(got, dim=1)

    for row, length in enumerate(lengths.tolist()):
        alone = model(ids[row : row + 1, : length + steps])[:, length - 1 :]
        assert (got[row : row + 1] - alone).abs().max() <= TOLERANCE


@torch.no_grad()
def test_cached_keys_of_dynamic_scaling_turn_with_the_growing_length(make_model) -> None:
    # One layer: in deeper ones earlier tokens keep the values they had at the earlier length.
    model = make_model(
        num_hidden_layers=1,
        max_position_embeddings=16,
        rope_scaling={"rope_type": "dynamic", "factor": 2.0},
    )
    ids = torch.randint(0, 53, (2, 40), generator=torch.Generator().manual_seed(3))
    stepwise = through_cache(model, ids, [1] * 40, tell_length=False)
    for length in (10, 16, 17, 30, 40):
        full = model(ids[:, :length])[:, -1]
        assert (stepwise[:, length - 1] - full).abs().max() <= TOLERANCE


@torch.no_grad()
def test_rows_of_a_batch_do_not_see_each_other(make_model, ids) -> None:
    model = make_model()
    before = through_cache(model, ids, [20, 20])
    other = ids.clone()
    other[0] = (other[0] + 1) % 53
    after = through_cache(model, other, [20, 20])
    assert torch.equal(before[1:], after[1:])
    assert not torch.equal(before[0], after[0])


@torch.no_grad()
def test_kept_rows_go_on_as_if_the_others_had_never_been(make_model, ids) -> None:
    model = make_model()
    cache = KVCache(model.config, 3, 40)
    positions = torch.arange(20).expand(3, 20)
    model(ids[:, :20], positions, cache)
    cache.keep_rows(torch.tensor([2, 0]))
    got = model(ids[[2, 0], 20:21], torch.full((2, 1), 20), cache)
    full = model(ids[[2, 0], :21])[:, -1:]
    assert (got - full).abs().max() <= TOLERANCE


@torch.no_grad()
def test_a_position_past_the_capacity_is_an_error_that_names_it(make_model, ids) -> None:
    model = make_model()
    cache = KVCache(model.config, 3, 8)
    with pytest.raises(ValueError, match="position 8 is past the cache's capacity of 8"):
        model(ids[:, :9], torch.arange(9).expand(3, 9), cache)
    assert not cache.keys.any()


@torch.no_grad()
def test_a_bfloat16_cache_under_a_float32_model_stays_close(make_model, ids) -> None:
    model = make_model()
    cache = KVCache(model.config, 3, 40, dtype=torch.bfloat16)
    first = torch.arange(30).expand(3, 30)
    model(ids[:, :30], first, cache)
    got = model(ids[:, 30:], torch.arange(30, 40).expand(3, 10), cache)
    full = model(ids)[:, 30:]
    assert cache.keys.dtype == torch.bfloat16
    assert (got - full).abs().max() < 0.1

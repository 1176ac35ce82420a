"""A step reads neighbouring slots of like length together, where they lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from llamita.model import cached_attention, decode_plan
from llamita.model.decode_plan import DecodePlan, _groups
from llamita.model.fused import FusedDecoder
from llamita.model.kv_cache import KVCache
from llamita.model.prefill_plan import PrefillPlan, Stretch
from llamita.model.rope import RotaryEmbedding, rotate, turn_
from llamita.model.transformer import Transformer

TOLERANCE = 1e-5
SLOTS, LENGTHS = [0, 1, 3, 4, 7], [5, 6, 38, 2, 30]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "every head its own keys": {"num_key_value_heads": 4},
    "window": {"sliding_window": 6},
    "dynamic rope": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
}


@torch.inference_mode()
def prepared(model: Transformer, ids: Tensor, **cache: Any) -> tuple[FusedDecoder, KVCache]:
    """A cache of nine slots, of which SLOTS hold LENGTHS tokens and the others remains."""
    decoder, held = FusedDecoder(model), KVCache(model.config, **cache)
    held.resize(9, 40)
    held.held.fill_(3.0)
    for row, (slot, length) in enumerate(zip(SLOTS, LENGTHS, strict=True)):
        plan = PrefillPlan(held, model.rope, [Stretch(slot, 0, length, 0)])
        decoder.logits(ids[row % 3, :length], plan)
    return decoder, held


@torch.inference_mode()
def step(decoder: FusedDecoder, cache: KVCache, model: Transformer, ids: Tensor) -> Tensor:
    tokens = torch.stack([ids[row % 3, length] for row, length in enumerate(LENGTHS)])
    return decoder.logits(tokens, DecodePlan(cache, model.rope, SLOTS, LENGTHS))


@pytest.mark.parametrize("call", [0, 20, 128, 10**9])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_however_rows_are_grouped(
    make_model, ids, monkeypatch, call: int, kind: str, dtype: torch.dtype
) -> None:
    model = make_model(**KINDS[kind])
    monkeypatch.setattr(decode_plan, "_PLACES_PER_CALL", call)
    got = step(*prepared(model, ids, dtype=dtype), model, ids)
    for row, length in enumerate(LENGTHS):
        with torch.no_grad():
            wanted = model(ids[row % 3, None, : length + 1])[0, -1]
        gap = (got[row] - wanted).abs().max()
        assert gap <= (TOLERANCE if dtype == torch.float32 else 0.1)


@pytest.mark.parametrize("blocks", [8, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_done_on_a_gpu_gives_the_same(
    make_model, ids, monkeypatch, kind: str, blocks: int
) -> None:
    model = make_model(**KINDS[kind])
    monkeypatch.setattr(KVCache, "is_on_gpu", True)
    monkeypatch.setattr(cached_attention, "_PLACES_ON_GPU", blocks)
    decoder, cache = prepared(model, ids)
    got = step(decoder, cache, model, ids)
    with torch.inference_mode():
        for start in (0, 9, 20):
            plan = PrefillPlan(
                cache, model.rope, [Stretch(5, start, 11, 0), Stretch(8, start, 9, 0)]
            )
            tokens = torch.cat((ids[0, start : start + 11], ids[1, start : start + 9]))
            read = decoder.logits(tokens, plan)
        one = decoder.logits(ids[0, 31:32], PrefillPlan(cache, model.rope, [Stretch(5, 31, 1, 0)]))
        wanted = model(ids[:1, :32])[0, 20:]
    assert (torch.cat((read[:11], one)) - wanted).abs().max() <= TOLERANCE
    for row, length in enumerate(LENGTHS):
        with torch.no_grad():
            wanted = model(ids[row % 3, None, : length + 1])[0, -1]
        assert (got[row] - wanted).abs().max() <= TOLERANCE


def test_no_slot_is_copied_to_be_read(make_model, ids, monkeypatch) -> None:
    model = make_model()
    decoder, cache = prepared(model, ids)
    begin, shapes = cache.held.data_ptr(), []

    def watched(q: Tensor, keys: Tensor, values: Tensor, **settings: Any) -> Tensor:
        for each in (keys, values):
            assert begin <= each.data_ptr() < begin + cache.held.nbytes
        shapes.append(tuple(keys.shape[::2]))
        return attention(q, keys, values, **settings)

    attention = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    monkeypatch.setattr(decode_plan, "_PLACES_PER_CALL", 20)
    step(decoder, cache, model, ids)
    assert shapes == [(2, 7), (1, 39), (1, 3), (1, 31)] * 2


def test_rows_are_split_where_that_saves_more_than_a_call() -> None:
    def sizes(slots: list[int], positions: list[int]) -> list[int]:
        return [rows.stop - rows.start for rows in _groups(slots, positions, 128)]

    everyone = list(range(16))
    assert sizes([3], [9]) == [1]
    assert sizes(everyone, [700] * 16) == [16]
    assert sizes(everyone, [8000] + [100] * 15) == [1, 15]
    assert sizes(everyone, [100] * 7 + [8000] + [110] * 8) == [7, 1, 8]
    assert sizes([0, 1, 3, 4], [100] * 4) == [4]
    assert sizes([0, 1, 3, 4], [700] * 4) == [2, 2]


@given(
    st.dictionaries(st.integers(0, 30), st.integers(0, 9000), min_size=1),
    st.integers(0, 1000),
)
def test_every_row_is_in_one_group(lengths: dict[int, int], call: int) -> None:
    slots = sorted(lengths)
    groups = list(_groups(slots, [lengths[slot] for slot in slots], call))
    assert [row for rows in groups for row in range(len(slots))[rows]] == list(range(len(slots)))
    assert all(rows.stop > rows.start for rows in groups)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_turning_in_place_is_rotating(make_model, dtype: torch.dtype) -> None:
    rope = RotaryEmbedding(make_model(**KINDS["dynamic rope"]).config)
    x = torch.randn(5, 9, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
    positions, lengths = torch.tensor([0, 3, 70, 9, 500]), torch.tensor([90, 4, 71, 600, 501])
    wanted = rotate(x[:, :, None], *rope.tables(positions[:, None], lengths))[:, :, 0]
    turned = x.clone()
    turn_(turned[:, :6], *rope.reading_tables(positions, lengths))
    atol = 1e-6 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(turned[:, :6], wanted[:, :6], atol=atol, rtol=1e-6)
    assert torch.equal(turned[:, 6:], x[:, 6:])

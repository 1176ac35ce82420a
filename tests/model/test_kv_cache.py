"""Logits through the cache are those of the full pass, however the tokens arrive."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from llamita.model.decode_plan import DecodePlan
from llamita.model.fused import FusedDecoder
from llamita.model.kv_cache import KVCache
from llamita.model.prefill_plan import PrefillPlan, Stretch
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
    "every head its own keys": {"num_key_value_heads": 4},
    "llama3 rope": {"rope_scaling": LLAMA3},
    "dynamic rope": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    "dynamic rope past its context": {
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
        "max_position_embeddings": 16,
    },
    "dynamic rope and window": {
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
        "max_position_embeddings": 16,
        "sliding_window": 6,
    },
    "yarn rope": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
}
UNTOLD = "dynamic rope past its context", "dynamic rope and window"
EACH_KIND = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Reader:
    """A model and a cache, read by hand."""

    def __init__(self, model: Transformer, slots: int, capacity: int, **cache: Any) -> None:
        self.model = model
        self.decoder = FusedDecoder(model)
        self.cache = KVCache(model.config, **cache)
        self.cache.resize(slots, capacity)

    @torch.inference_mode()
    def prefill(self, *parts: tuple[int, int, Tensor], whole: int = 0) -> list[Tensor]:
        """Read parts (slot, start, ids [T]) in one pass; gives the logits [T, V] of each."""
        stretches = [Stretch(slot, start, len(ids), whole) for slot, start, ids in parts]
        plan = PrefillPlan(self.cache, self.model.rope, stretches)
        logits = self.decoder.logits(torch.cat([ids for _, _, ids in parts]), plan)
        return list(logits.split([len(ids) for _, _, ids in parts]))

    @torch.inference_mode()
    def decode(self, slots: list[int], ids: Tensor, positions: list[int]) -> Tensor:
        """Read ids [B], one in each slot; gives logits [B, V]."""
        plan = DecodePlan(self.cache, self.model.rope, slots, positions)
        return self.decoder.logits(ids, plan)

    def read(self, row: Tensor, lengths: list[int], slot: int = 0) -> Tensor:
        """Logits [T, V] of one row read in stretches of these lengths."""
        ends = list(itertools.accumulate(lengths))
        parts = [
            self.prefill((slot, end - n, row[end - n : end]), whole=len(row))[0]
            for n, end in zip(lengths, ends, strict=True)
        ]
        return torch.cat(parts)


@torch.no_grad()
def full(model: Transformer, row: Tensor) -> Tensor:
    return model(row[None])[0]


def gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in UNTOLD])
def test_one_token_at_a_time_equals_the_full_pass(make_model, ids, kind: str) -> None:
    model = make_model(**KINDS[kind])
    reader = Reader(model, 3, 40)
    steps = [reader.decode([0, 1, 2], ids[:, at], [at] * 3) for at in range(40)]
    for row, got in enumerate(torch.stack(steps, dim=1)):
        assert gap(got, full(model, ids[row])) <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
@EACH_KIND
@given(cuts=st.sets(st.integers(1, 39)))
def test_any_split_into_stretches_equals_the_full_pass(
    make_model, ids, kind: str, cuts: set[int]
) -> None:
    model = make_model(**KINDS[kind])
    borders = [0, *sorted(cuts), 40]
    lengths = [end - start for start, end in itertools.pairwise(borders)]
    got = Reader(model, 2, 40).read(ids[0], lengths, slot=1)
    assert gap(got, full(model, ids[0])) <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
@EACH_KIND
@given(
    lengths=st.lists(st.integers(1, 14), min_size=3, max_size=3),
    slots=st.permutations([0, 1, 2, 5]),
    steps=st.integers(1, 6),
)
def test_a_ragged_batch_in_any_slots_equals_each_row_alone(
    make_model, ids, kind: str, lengths: list[int], slots: list[int], steps: int
) -> None:
    """Prompts in one pass, then their second halves in another, then steps of one token each."""
    model = make_model(**KINDS[kind])
    tell = 2 * max(lengths) + steps  # dynamic scaling past its context: every row ends alike
    starts = [tell - steps - 2 * length for length in lengths]
    reader, slots = Reader(model, 6, 40), sorted(slots[:3])
    got: list[list[Tensor]] = [[] for _ in slots]
    for row, (slot, start) in enumerate(zip(slots, starts, strict=True)):
        if start:
            got[row] += reader.prefill((slot, 0, ids[row, :start]), whole=tell)
    for turn in (0, 1):
        begins = [start + turn * n for start, n in zip(starts, lengths, strict=True)]
        parts = [
            (slot, begin, ids[row, begin : begin + n])
            for row, (slot, begin, n) in enumerate(zip(slots, begins, lengths, strict=True))
        ]
        for row, logits in enumerate(reader.prefill(*parts, whole=tell)):
            got[row].append(logits)
    if kind not in UNTOLD:
        for at in range(tell - steps, tell):
            for row, logits in enumerate(reader.decode(slots, ids[:, at], [at] * 3)):
                got[row].append(logits[None])
    for row, parts_of_row in enumerate(got):
        logits = torch.cat(parts_of_row)
        assert gap(logits, full(model, ids[row, :tell])[: len(logits)]) <= TOLERANCE


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in UNTOLD])
def test_rows_of_different_lengths_decode_together(make_model, ids, kind: str) -> None:
    model = make_model(**KINDS[kind])
    reader = Reader(model, 4, 40)
    slots, lengths = [0, 1, 3], [17, 5, 11]
    reader.prefill(*((slots[row], 0, ids[row, : lengths[row]]) for row in range(3)))
    steps = []
    for step in range(12):
        at = [length + step for length in lengths]
        steps.append(reader.decode(slots, ids[torch.arange(3), at], at))
    for row, (got, n) in enumerate(zip(torch.stack(steps, dim=1), lengths, strict=True)):
        assert gap(got, full(model, ids[row, : n + 12])[n:]) <= TOLERANCE


@torch.no_grad()
def test_cached_keys_of_dynamic_scaling_turn_with_the_growing_length(make_model) -> None:
    # One layer: in deeper ones earlier tokens keep the values they had at the earlier length.
    model = make_model(
        num_hidden_layers=1,
        max_position_embeddings=16,
        rope_scaling={"rope_type": "dynamic", "factor": 2.0},
    )
    row = torch.randint(0, 53, (40,), generator=torch.Generator().manual_seed(3))
    reader = Reader(model, 1, 40)
    steps = [reader.decode([0], row[at : at + 1], [at])[0] for at in range(40)]
    for length in (10, 16, 17, 30, 40):
        assert gap(steps[length - 1], full(model, row[:length])[-1]) <= TOLERANCE


def test_rows_of_a_batch_do_not_see_each_other(make_model, ids) -> None:
    def read(first: Tensor) -> list[Tensor]:
        reader = Reader(make_model(), 2, 40)
        prompts = reader.prefill((0, 0, first[:20]), (1, 0, ids[1, :20]))
        return [*prompts, *reader.decode([0, 1], torch.stack((first, ids[1]))[:, 20], [20, 20])]

    before, after = read(ids[0]), read((ids[0] + 1) % 53)
    assert torch.equal(before[1], after[1])
    assert torch.equal(before[3], after[3])
    assert not torch.equal(before[0], after[0])


def test_what_a_slot_held_before_is_never_seen(make_model, ids) -> None:
    reader, fresh = Reader(make_model(), 2, 40), Reader(make_model(), 2, 40)
    reader.prefill((0, 0, ids[1]), (1, 0, ids[2]))
    for each in (reader, fresh):
        each.prefill((0, 0, ids[0, :9]), (1, 0, ids[0, :4]))
    assert torch.equal(
        reader.decode([0, 1], ids[:2, 9], [9, 4]), fresh.decode([0, 1], ids[:2, 9], [9, 4])
    )


@pytest.mark.parametrize("kind", ["plain", "window"])
def test_a_rejected_draft_leaves_no_trace(make_model, ids, kind: str) -> None:
    model = make_model(**KINDS[kind])
    reader = Reader(model, 1, 40)
    reader.read(ids[0, :20], [20])
    reader.prefill((0, 20, ids[1, 20:30]))
    got = reader.decode([0], ids[0, 20:21], [20])[0]
    assert gap(got, full(model, ids[0, :21])[-1]) <= TOLERANCE


def test_a_copied_beginning_serves_another_row(make_model, ids) -> None:
    model = make_model()
    reader = Reader(model, 3, 40)
    reader.read(ids[0], [40])
    reader.cache.copy(0, 2, 15)
    row = torch.cat((ids[0, :15], ids[1, 15:]))
    got = reader.prefill((2, 15, row[15:]))[0]
    assert gap(got, full(model, row)[15:]) <= TOLERANCE
    assert gap(reader.decode([0], ids[0, 39:], [39])[0], full(model, ids[0])[-1]) <= TOLERANCE


@pytest.mark.parametrize("kind", ["plain", "window"])
def test_a_cache_grows_and_keeps_what_it_holds(make_model, ids, kind: str) -> None:
    model = make_model(**KINDS[kind])
    reader = Reader(model, 1, 20)
    reader.prefill((0, 0, ids[0, :20]))
    reader.cache.resize(3, 40)
    assert (reader.cache.slots, reader.cache.capacity) == (3, 40)
    reader.prefill((2, 0, ids[2, :30]))
    got = reader.prefill((0, 20, ids[0, 20:]))[0]
    assert gap(got, full(model, ids[0])[20:]) <= TOLERANCE
    reader.cache.resize(1, 40)
    assert (reader.cache.slots, reader.cache.capacity) == (1, 40)
    assert gap(reader.prefill((0, 30, ids[0, 30:]))[0], full(model, ids[0])[30:]) <= TOLERANCE
    reader.cache.resize(2, 10)
    assert reader.cache.held.shape[2:5:2] == (2, min(10, reader.cache.size))
    assert gap(reader.prefill((0, 7, ids[0, 7:10]))[0], full(model, ids[0])[7:10]) <= TOLERANCE
    reader.cache.resize(2, 40)
    assert gap(reader.prefill((0, 10, ids[0, 10:]))[0], full(model, ids[0])[10:]) <= TOLERANCE


def test_a_cache_without_memory_for_a_new_size_stays_as_it_was(
    make_model, ids, monkeypatch
) -> None:
    model = make_model()
    reader = Reader(model, 2, 30)
    reader.prefill((1, 0, ids[1, :20]))

    def full_up(*_: int) -> Tensor:
        raise MemoryError

    monkeypatch.setattr(reader.cache, "_zeros", full_up)
    for slots, capacity in ((9, 30), (2, 40), (1, 10)):
        with pytest.raises(MemoryError):
            reader.cache.resize(slots, capacity)
        assert (reader.cache.slots, reader.cache.capacity, reader.cache.size) == (2, 30, 30)
    assert gap(reader.prefill((1, 20, ids[1, 20:30]))[0], full(model, ids[1, :30])[20:]) <= 1e-5
    monkeypatch.undo()
    reader.cache.resize(3, 40)
    assert gap(reader.prefill((1, 20, ids[1, 20:]))[0], full(model, ids[1])[20:]) <= TOLERANCE


@pytest.mark.parametrize("kind", ["plain", "window"])
def test_a_cache_of_no_slots_holds_no_memory(make_model, ids, kind: str) -> None:
    model = make_model(**KINDS[kind])
    reader = Reader(model, 2, 30)
    reader.prefill((1, 0, ids[1, :20]))
    reader.cache.resize(0, 0)
    assert (reader.cache.slots, reader.cache.capacity) == (0, 0)
    assert reader.cache.held.untyped_storage().nbytes() <= 64
    reader.cache.resize(1, 40)
    assert gap(reader.read(ids[0], [40]), full(model, ids[0])) <= TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_begins_where_vector_registers_can_load(make_model, dtype) -> None:
    for slots in range(1, 6):
        assert Reader(make_model(), slots, 40, dtype=dtype).cache.held.data_ptr() % 64 == 0


def test_a_position_past_the_capacity_is_an_error_that_names_it(make_model, ids) -> None:
    reader = Reader(make_model(), 2, 8)
    with pytest.raises(ValueError, match="position 8 is past the cache's capacity of 8"):
        reader.prefill((0, 0, ids[0, :9]))
    with pytest.raises(ValueError, match="position 8 is past the cache's capacity of 8"):
        reader.decode([0, 1], ids[:2, 0], [3, 8])
    assert not reader.cache.held.any()


def test_a_bfloat16_cache_under_a_float32_model_stays_close(make_model, ids) -> None:
    model = make_model()
    reader = Reader(model, 1, 40, dtype=torch.bfloat16)
    got = reader.read(ids[0], [30, 10])
    assert reader.cache.held.dtype == torch.bfloat16
    assert gap(got, full(model, ids[0])) < 0.1
    assert gap(got, full(model, ids[0])) > TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rounded_cache_gives_the_same_however_a_row_is_cut(make_model, ids, dtype) -> None:
    model = make_model()
    once, pieces = (Reader(model, 1, 40, dtype=dtype).read(ids[0], n) for n in ([40], [7, 1, 32]))
    assert gap(once, pieces) <= TOLERANCE


# Windows of the rolling cache ---------------------------------------------------------------------


@pytest.mark.parametrize("rope", ["default", "dynamic"])
def test_a_rolling_cache_reads_a_long_text_in_constant_memory(make_model, rope: str) -> None:
    fields: dict[str, Any] = {"sliding_window": 7, "max_position_embeddings": 2000}
    if rope == "dynamic":
        fields |= {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    model = make_model(**fields)
    row = torch.randint(0, 53, (1100,), generator=torch.Generator().manual_seed(5))
    reader = Reader(model, 2, 1100)
    assert reader.cache.size < 300
    wanted = full(model, row)
    got = reader.read(row[:1000], [200, 256, 3, 256, 256, 1, 28])
    assert gap(got, wanted[:1000]) <= TOLERANCE
    steps = [reader.decode([0], row[at : at + 1], [at])[0] for at in range(1000, 1100)]
    assert gap(torch.stack(steps), wanted[1000:]) <= TOLERANCE


def test_a_segment_that_a_rolling_cache_has_no_room_for_is_refused(make_model, ids) -> None:
    reader = Reader(make_model(sliding_window=7), 1, 1100)
    with pytest.raises(ValueError, match="257 tokens at once; a rolling cache takes 256"):
        reader.prefill((0, 0, torch.zeros(257, dtype=torch.long)))


def test_a_rolled_slot_serves_only_rows_that_see_what_it_still_holds(make_model) -> None:
    model = make_model(sliding_window=7, max_position_embeddings=2000)
    row = torch.randint(0, 53, (700,), generator=torch.Generator().manual_seed(5))
    reader = Reader(model, 2, 700)
    reader.read(row[:600], [200, 200, 200])
    cache = reader.cache
    assert cache.reusable(200, 50) == 50  # it had not rolled yet
    assert cache.reusable(600, 300) == 0
    shared = 600 - cache.size + 7
    assert cache.reusable(600, shared - 1) == 0
    assert cache.reusable(600, shared) == shared
    cache.copy(0, 1, shared)
    other = torch.cat((row[:shared], row[shared:].flip(0)))[:600]
    got = reader.prefill((1, shared, other[shared:][:200]))[0]
    assert gap(got, full(model, other[: shared + 200])[shared:]) <= TOLERANCE


def test_room_for_a_long_context_costs_nothing_until_it_is_used(make_model) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reader = Reader(make_model(), 8, 2_000_000)
    reader.cache.resize(9, 2_000_000)
    reserved = reader.cache.slot_bytes(2_000_000) * 9
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert reserved > 4e9
    assert grown < reserved / 20

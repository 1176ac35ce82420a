"""Each sampling step against a slow, plain reference, and the rules that people trip over."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llamita.inference.params import SamplingParams
from llamita.inference.sampling import (
    NO_TOKEN,
    UniformStream,
    apply_repetition_penalty,
    apply_temperature,
    choose,
    greedy,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    sample,
)

# Few distinct values, so that ties are common; differences far above rounding.
LOGIT = st.integers(-12, 12).map(lambda step: step * 0.5)
ROW = st.lists(LOGIT, min_size=1, max_size=12)


def softmax(row: list[float]) -> list[float]:
    best = max(row)
    weights = [math.exp(x - best) for x in row]
    return [weight / sum(weights) for weight in weights]


def best_first(row: list[float]) -> list[int]:
    return sorted(range(len(row)), key=lambda i: (-row[i], i))


def kept(row: torch.Tensor) -> set[int]:
    return {i for i, x in enumerate(row.tolist()) if x != -math.inf}


def plain_choice(
    row: list[float], seen: set[int], params: SamplingParams, u: float
) -> tuple[int, float]:
    """The token by the documented order, and how far u is from the nearest border."""
    penalty = params.repetition_penalty
    row = [(x / penalty if x > 0 else x * penalty) if i in seen else x for i, x in enumerate(row)]
    if params.temperature == 0:
        return best_first(row)[0], 1.0
    row = [x / params.temperature for x in row]
    order = best_first(row)
    if params.top_k:
        order = order[: params.top_k]
    gap = 1.0
    for rule in ("top_p", "min_p"):
        shares = softmax([row[i] for i in order])
        survivors = []
        reached = 0.0
        for share, i in zip(shares, order, strict=True):
            if rule == "top_p" and params.top_p < 1:
                if survivors:
                    gap = min(gap, abs(reached - params.top_p))
                if reached >= params.top_p and survivors:
                    break
            elif rule == "min_p" and params.min_p > 0:
                if share != shares[0]:
                    gap = min(gap, abs(share - params.min_p * shares[0]))
                if share < params.min_p * shares[0]:
                    continue
            survivors.append(i)
            reached += share
        order = survivors
    ids = sorted(order)
    reached = 0.0
    for share, i in zip(softmax([row[i] for i in ids]), ids, strict=True):
        reached += share
        gap = min(gap, abs(reached - u))
        if u < reached:
            return i, gap
    return ids[-1], gap


@given(
    row=ROW,
    data=st.data(),
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.0, 2.0]),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    penalty=st.sampled_from([0.5, 1.0, 1.3, 2.0]),
    u=st.floats(0, 1, exclude_max=True, width=32),
)
@settings(max_examples=400)
def test_choose_follows_the_documented_order(
    row, data, temperature, top_k, top_p, min_p, penalty, u
):
    seen = data.draw(st.sets(st.integers(0, len(row) - 1)))
    params = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=penalty,
    )
    expected, gap = plain_choice(row, seen, params, u)
    if gap < 1e-5:
        return  # at a border rounding decides
    mask = torch.zeros(1, len(row), dtype=torch.bool)
    mask[0, list(seen)] = True
    assert choose(torch.tensor([row]), params, mask, torch.tensor([u])).tolist() == [expected]


@given(row=ROW, k=st.integers(0, 20))
def test_top_k_keeps_exactly_the_k_best_and_of_equals_the_lower_ids(row, k):
    expected = set(best_first(row)[:k]) if k else set(range(len(row)))
    assert kept(keep_top_k(torch.tensor([row]), k)[0]) == expected


@given(row=ROW, p=st.floats(0, 1))
def test_top_p_keeps_the_fewest_tokens_that_reach_p(row, p):
    probabilities = softmax(row)
    survivors = kept(keep_top_p(torch.tensor([row]), p)[0])
    order = best_first(row)
    assert survivors == set(order[: len(survivors)])
    assert order[0] in survivors
    reached = sum(probabilities[i] for i in survivors)
    assert reached >= p - 1e-5
    if 1 < len(survivors) < len(row):
        last = probabilities[order[len(survivors) - 1]]
        assert reached - last < p + 1e-5


@pytest.mark.parametrize("p", [0.2, 0.9, 0.9999])
def test_top_p_over_a_large_vocabulary_is_that_of_a_full_sort(p):
    steep, flat = torch.arange(2000) * -0.05, torch.arange(2000) * -0.0005
    shuffle = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    logits = torch.stack([steep, flat])[:, shuffle]
    for row, survivors in zip(logits.tolist(), keep_top_p(logits, p), strict=True):
        order, probabilities = best_first(row), softmax(row)
        count, reached = 0, 0.0
        while reached < p:
            reached += probabilities[order[count]]
            count += 1
        assert kept(survivors) == set(order[:count])


def test_top_p_keeps_the_token_that_crosses_p():
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    assert kept(keep_top_p(logits, 0.6)[0]) == {0, 1}
    assert kept(keep_top_p(logits, 0.45)[0]) == {0}
    assert kept(keep_top_p(logits, 0.0)[0]) == {0}


def test_top_p_applies_after_temperature():
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    hot = SamplingParams(temperature=10.0, top_p=0.6)
    cold = SamplingParams(temperature=0.1, top_p=0.6)
    u = torch.tensor([0.99])
    assert choose(logits, hot, None, u).item() == 2
    assert choose(logits, cold, None, u).item() == 0


@given(row=ROW, min_p=st.sampled_from([0.0, 0.01, 0.2, 0.7, 1.0]))
def test_min_p_keeps_a_share_of_the_best(row, min_p):
    probabilities = softmax(row)
    expected = {i for i, p in enumerate(probabilities) if p >= min_p * max(probabilities) - 1e-9}
    assert kept(keep_min_p(torch.tensor([row]), min_p)[0]) == expected


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits():
    logits = torch.tensor([[2.0, 4.0, -3.0, 1.0]])
    seen = torch.tensor([[False, True, True, False]])
    assert apply_repetition_penalty(logits, seen, 2.0).tolist() == [[2.0, 2.0, -6.0, 1.0]]


def test_rows_do_not_share_what_was_seen():
    logits = torch.tensor([[2.0, 4.0, -3.0, 1.0]] * 2)
    seen = torch.tensor([[False, True, True, False], [True, False, False, False]])
    assert apply_repetition_penalty(logits, seen, 2.0).tolist() == [
        [2.0, 2.0, -6.0, 1.0],
        [1.0, 4.0, -3.0, 1.0],
    ]


@given(row=ROW, temperature=st.floats(0.05, 5))
def test_temperature_divides_the_logits(row, temperature):
    scaled = apply_temperature(torch.tensor([row]), temperature).softmax(-1)[0].tolist()
    assert scaled == pytest.approx(softmax([x / temperature for x in row]), abs=1e-5)


@pytest.mark.parametrize("temperature", [1e-300, 1e-46, 1e-38, 1e-10])
def test_a_tiny_temperature_is_argmax(temperature):
    params = SamplingParams(temperature=temperature)
    u = torch.tensor([0.999])
    assert choose(torch.tensor([[90.0, 90.5, -80.0]]), params, None, u).item() == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_temperature_0_is_argmax_and_of_equals_the_lowest_id(dtype):
    logits = torch.tensor([[1.0, 7.0, 7.0, 2.0], [3.0, 3.0, 3.0, 3.0]], dtype=dtype)
    chosen = choose(logits, SamplingParams(temperature=0), None, torch.zeros(2))
    assert chosen.tolist() == [1, 0]


def test_logits_of_low_precision_are_sampled_in_float32():
    logits = (torch.arange(300) * 0.01).to(torch.bfloat16).expand(500, -1)
    u = (torch.arange(500) + 0.5) / 500
    params = SamplingParams(temperature=0.7, top_p=0.9)
    assert torch.equal(choose(logits, params, None, u), choose(logits.float(), params, None, u))


def test_greedy_and_sample_tell_rows_that_hold_nan():
    logits = torch.tensor([[1.0, 2.0], [math.nan, 1.0]])
    assert greedy(logits).tolist() == [1, NO_TOKEN]
    assert sample(logits, torch.zeros(2)).tolist()[1] == NO_TOKEN
    few = SamplingParams(top_k=1)
    assert choose(logits, few, None, torch.zeros(2)).tolist() == [1, NO_TOKEN]


@given(row=st.lists(st.one_of(LOGIT, st.just(-math.inf)), min_size=1, max_size=9))
def test_sample_never_gives_a_token_that_was_ruled_out(row):
    if all(x == -math.inf for x in row):
        return
    for u in (0.0, 1e-9, 0.5, 1 - 2**-24, 1.0):
        token = sample(torch.tensor([row]), torch.tensor([u])).item()
        assert row[token] != -math.inf


def test_sample_draws_each_token_as_often_as_its_probability():
    shares = torch.tensor([0.1, 0.0, 0.6, 0.3])
    draws = 20000
    uniform = (torch.arange(draws) + 0.5) / draws
    tokens = sample(shares.log().expand(draws, -1), uniform)
    counted = torch.bincount(tokens, minlength=4) / draws
    assert counted.tolist() == pytest.approx(shares.tolist(), abs=1e-3)


def test_a_stream_of_uniforms_depends_on_the_seed_of_the_row_alone():
    alone = UniformStream(1, 7, torch.device("cpu"))
    many = UniformStream(3, 7, torch.device("cpu"))
    other = UniformStream(1, 8, torch.device("cpu"))
    first = [alone.next().item() for _ in range(70)]
    rows = [many.next().tolist() for _ in range(30)]
    many.keep_rows([2])
    rest = [many.next().tolist() for _ in range(40)]
    assert first == [row[1] for row in rows] + [row[0] for row in rest]
    assert first != [other.next().item() for _ in range(70)]
    assert len(set(first)) == 70


def test_rows_without_a_seed_differ_from_each_other():
    stream = UniformStream(2, None, torch.device("cpu"))
    first, second = stream.next().tolist()
    assert first != second

"""Each filter against a slow, plain reference, on small rows with ties and on large ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.inference.filters import (
    highest_first,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    keep_typical,
)
from tests.inference.plain_sampling import ROW, best_first, softmax, typical_first


def array(row) -> np.ndarray:
    return np.array(row, dtype=np.float32)


def check_fewest(kept: list[int], order: list[int], shares: dict[int, float], p: float) -> None:
    """Kept are the first of the order, and no more than reach p."""
    assert kept == sorted(order[: len(kept)])
    reached = math.fsum(shares[i] for i in kept)
    assert reached >= p - 1e-5
    if len(kept) > 1:
        assert reached - shares[order[len(kept) - 1]] < p + 1e-5


@pytest.fixture(params=["peaked", "flat", "tied", "masked"])
def large(request) -> np.ndarray:
    """Thousands of logits, of the shapes that the short cuts are made for and not made for."""
    generator = np.random.default_rng(0)
    normal = generator.standard_normal(6000).astype(np.float32)
    if request.param == "peaked":
        return normal * 4
    if request.param == "flat":
        return normal * np.float32(0.001)
    if request.param == "tied":
        return np.round(normal)
    normal[generator.permutation(6000)[:5000]] = -math.inf
    return normal


@given(row=ROW, k=st.integers(0, 20))
def test_top_k_keeps_exactly_the_k_best_and_of_equals_the_lower_ids(row, k):
    expected = best_first(dict(enumerate(row)))[:k] if k else range(len(row))
    assert keep_top_k(array(row), k).tolist() == sorted(expected)


@pytest.mark.parametrize("k", [1, 2, 50, 300, 5999, 6000, 7000])
def test_top_k_of_a_large_vocabulary_is_that_of_a_full_sort(large, k):
    expected = best_first(dict(enumerate(large.tolist())))[:k]
    assert keep_top_k(large, k).tolist() == sorted(expected)
    assert highest_first(large, k).tolist() == expected


@given(row=ROW, p=st.floats(0, 1))
def test_top_p_keeps_the_fewest_tokens_that_reach_p(row, p):
    scores = dict(enumerate(row))
    check_fewest(keep_top_p(array(row), p).tolist(), best_first(scores), softmax(scores), p)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.9, 0.9999, 1 - 1e-12, 1.0])
def test_top_p_of_a_large_vocabulary_is_that_of_a_full_sort(large, p):
    scores = dict(enumerate(large.tolist()))
    check_fewest(keep_top_p(large, p).tolist(), best_first(scores), softmax(scores), p)


def test_top_p_keeps_the_token_that_crosses_p():
    logits = np.log(array([0.5, 0.3, 0.2]))
    assert keep_top_p(logits, 0.6).tolist() == [0, 1]
    assert keep_top_p(logits, 0.45).tolist() == [0]
    assert keep_top_p(logits, 0.0).tolist() == [0]


@given(row=ROW, p=st.floats(0, 1))
def test_typical_keeps_the_fewest_tokens_nearest_to_the_entropy_that_reach_p(row, p):
    scores = dict(enumerate(row))
    kept, shares = set(keep_typical(array(row), p).tolist()), softmax(scores)
    order = typical_first(scores)
    # Of two as near to the entropy, one above and one below, rounding may take either.
    expected = set(order[: len(kept)])
    swapped = [(i, j) for i in kept - expected for j in expected - kept]
    entropy = -sum(share * math.log(share) for share in shares.values())
    for i, j in swapped:
        distances = [abs(-math.log(shares[token]) - entropy) for token in (i, j)]
        assert distances[0] == pytest.approx(distances[1], abs=1e-5)
    reached = sum(shares[i] for i in kept)
    assert kept
    assert reached >= p - 1e-5
    if len(kept) > 1 and not swapped:
        assert reached - shares[order[len(kept) - 1]] < p + 1e-5


@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("scale", [0.05, 1.0, 4.0])
def test_typical_of_a_large_vocabulary_is_that_of_a_full_sort(p, scale):
    large = np.random.default_rng(1).standard_normal(6000).astype(np.float32) * np.float32(scale)
    scores = dict(enumerate(large.tolist()))
    kept, order, shares = keep_typical(large, p).tolist(), typical_first(scores), softmax(scores)
    # Neighbours in the order may change places by rounding; the sum does not notice.
    assert len(set(kept) - set(order[: len(kept)])) <= len(kept) // 100
    reached = math.fsum(shares[i] for i in kept)
    assert p - 1e-4 <= reached < p + max(shares.values()) + 1e-4


def test_typical_leaves_out_the_likeliest_where_it_says_too_little():
    # Many alike hold most of the probability: the likeliest one's information is far from theirs.
    logits = np.log(array([0.2] + [0.05] * 16))
    assert 0 not in keep_typical(logits, 0.5).tolist()


@given(row=ROW, min_p=st.sampled_from([0.0, 0.01, 0.2, 0.7, 1.0]))
def test_min_p_keeps_a_share_of_the_best(row, min_p):
    shares = softmax(dict(enumerate(row)))
    best = max(shares.values())
    expected = [i for i, share in shares.items() if share >= min_p * best - 1e-9]
    assert keep_min_p(array(row), min_p).tolist() == expected


FILTERS = [
    (keep_top_k, 2),
    (keep_top_p, 0.5),
    (keep_min_p, 0.3),
    (keep_typical, 0.5),
]


@given(
    row=st.lists(st.one_of(ROW.map(lambda r: r[0]), st.just(-math.inf)), min_size=1, max_size=9),
    which=st.sampled_from(FILTERS),
)
def test_a_filter_keeps_what_it_would_keep_if_masked_tokens_were_not_there(row, which):
    keep, value = which
    finite = [i for i, x in enumerate(row) if x != -math.inf]
    if len(finite) < 2:
        return
    expected = [finite[place] for place in keep(array([row[i] for i in finite]), value)]
    assert keep(array(row), value).tolist() == expected


@pytest.mark.parametrize(("keep", "value"), FILTERS)
def test_a_filter_leaves_its_logits_as_they_are(keep, value, large):
    before = large.copy()
    keep(large, value)
    assert np.array_equal(before, large)

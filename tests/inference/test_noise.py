"""Draws follow their weights, belong to tokens, and hardly notice rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.inference.noise import NoiseStream, race


def draws(weights, count, ids=None, seed=0):
    stream = NoiseStream(seed)
    weights = np.asarray(weights, dtype=np.float32)
    return np.array([race(weights, ids, stream.next()) for _ in range(count)])


def chi_squared(observed, probabilities):
    expected = np.asarray(probabilities) * observed.sum()
    return float(((observed - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("seed", range(4))
def test_draws_follow_the_weights(seed):
    probabilities = np.array([0.5, 0.25, 0.15, 0.06, 0.03, 0.01])
    observed = np.bincount(draws(probabilities * 7, 20_000, seed=seed), minlength=6)
    assert chi_squared(observed, probabilities) < 20.5  # 99.9 % of 5 degrees of freedom


@pytest.mark.parametrize("offset", [0, 100_000])
def test_many_equal_weights_are_drawn_alike(offset):
    ids = np.arange(offset, offset + 64)
    observed = np.bincount(draws(np.ones(64), 40_000, ids=ids), minlength=64)
    assert chi_squared(observed, np.full(64, 1 / 64)) < 104  # 99.9 % of 63


def test_a_long_tail_of_rare_tokens_has_its_share():
    weights = np.full(50_000, 1e-6)
    weights[123] = 0.95
    drawn = draws(weights, 20_000)
    rare = drawn[drawn != 123]
    assert abs(len(rare) / 20_000 - 0.05) < 0.006
    assert abs(rare.mean() - 25_000) < 2_000
    assert len(set(rare.tolist())) > 0.97 * len(rare)


def test_successive_draws_are_independent():
    drawn = draws([1, 1], 40_000)
    pairs = np.bincount(2 * drawn[:-1] + drawn[1:], minlength=4)
    assert chi_squared(pairs, np.full(4, 0.25)) < 16.3


def test_what_weighs_nothing_is_never_drawn():
    assert set(draws([0, 1e-30, 0, 1e-30, 0], 200).tolist()) == {1, 3}


@given(
    weights=st.lists(st.floats(0, 100, width=32), min_size=1, max_size=50).filter(any),
    key=st.integers(0, 2**64 - 1),
    data=st.data(),
)
def test_the_noise_belongs_to_the_token_and_not_to_its_place(weights, key, data):
    weights = np.asarray(weights, dtype=np.float32)
    everyone = race(weights, None, key)
    kept = data.draw(st.sets(st.integers(0, len(weights) - 1))) | {everyone}
    ids = np.array(data.draw(st.permutations(sorted(kept))))
    assert ids[race(weights[ids], ids, key)] == everyone


@given(weights=st.lists(st.floats(0, 100, width=32), min_size=1, max_size=40).filter(any))
def test_the_shortcut_changes_nothing(weights):
    weights = np.asarray(weights, dtype=np.float32)
    stream, plain = NoiseStream(5), NoiseStream(5)
    for _ in range(20):
        place, key = race(weights, None, stream.next()), plain.next()
        # Each token alone with a sure one tells its own clock: the earliest of all is drawn.
        for other in range(len(weights)):
            if other != place and weights[other]:
                pair = np.array([place, other])
                assert race(weights[pair], pair, key) == 0


def test_differences_of_rounding_seldom_change_a_draw():
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 3, 30_000).astype(np.float32)
    changed = 0
    stream = NoiseStream(1)
    for _ in range(1000):
        key = stream.next()
        moved = logits + generator.normal(0, 2e-5, logits.shape).astype(np.float32)
        changed += race(np.exp(logits), None, key) != race(np.exp(moved), None, key)
    assert changed <= 1


def test_the_same_seed_gives_the_same_keys_for_ever():
    assert [NoiseStream(7).next() for _ in range(2)] == [NoiseStream(7).next()] * 2
    stream = NoiseStream(7)
    keys = [stream.next() for _ in range(200)]
    assert len(set(keys)) == 200
    assert keys[:2] == [11530976094092348043, 16550673365885938325]
    assert NoiseStream(None).next() != NoiseStream(None).next()

"""Drawing a token as a whole: against a slow, plain reference, and what people trip over."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamita.inference.history import History
from llamita.inference.noise import NoiseStream
from llamita.inference.params import SAMPLERS, SamplingParams
from llamita.inference.sampling import (
    NO_TOKEN,
    apply_temperature,
    choose,
    log_probabilities,
    no_token_error,
)
from tests.inference.plain_sampling import LOGIT, ROW, plain_choice, softmax

BORDER = 1e-4  # nearer than this to a border rounding decides


def array(row) -> np.ndarray:
    return np.array(row, dtype=np.float32)


def bits(allowed, vocab_size: int) -> np.ndarray:
    words = np.zeros(-(-vocab_size // 32), dtype=np.uint32)
    for token in allowed:
        words[token // 32] |= np.uint32(1 << (token % 32))
    return words


def choose_one(row, params, key=1, *, prompt=(), output=(), allowed=None, vocab_size=None):
    history = History(prompt, params, len(row) if vocab_size is None else vocab_size)
    for token in output:
        history.append(token)
    mask = None if allowed is None else bits(allowed, history.vocab_size)
    return choose(array(row), params, history, key, mask)


KEY = st.integers(0, 2**64 - 1)
PARAMS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 0.8, 1.0, 2.0]),
        "top_k": st.integers(0, 14),
        "typical_p": st.sampled_from([0.0, 0.4, 0.9, 1.0, 1.0]),
        "top_p": st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 0.3, 1.0]),
        # Powers of two, so that what is equal in doubles is equal in floats.
        "repetition_penalty": st.sampled_from([0.5, 1.0, 2.0]),
        "frequency_penalty": st.sampled_from([0.0, 0.5, -1.0]),
        "presence_penalty": st.sampled_from([0.0, 0.25, -2.0]),
        "no_repeat_ngram_size": st.integers(0, 3),
    }
)


@given(row=ROW, chosen=PARAMS, data=st.data(), key=KEY)
@settings(max_examples=300)
def test_choose_follows_the_documented_order(row, chosen, data, key):
    padding = data.draw(st.lists(st.just(50.0), max_size=3))
    token = st.integers(0, len(row) - 1)
    tokens = st.lists(token, max_size=6)
    params = SamplingParams(
        **chosen,
        logit_bias=data.draw(st.dictionaries(token, LOGIT, max_size=3)),
        banned_token_ids=data.draw(st.lists(token, max_size=3)),
    )
    prompt, output = data.draw(tokens), data.draw(tokens)
    allowed = data.draw(st.one_of(st.none(), st.sets(token)))
    expected, gap = plain_choice(row, params, key, prompt, output, allowed)
    got = choose_one(
        row + padding,
        params,
        key,
        prompt=prompt,
        output=output,
        allowed=allowed,
        vocab_size=len(row),
    )
    if gap > BORDER:
        assert got == (NO_TOKEN if expected is None else expected)


@pytest.mark.parametrize("sampler", [*SAMPLERS, None])
@pytest.mark.parametrize("scale", [0.1, 1.5, 6.0])
def test_choose_from_a_large_vocabulary_is_that_of_the_plain_reference(sampler, scale):
    generator = np.random.default_rng(3)
    row = (generator.standard_normal(5000) * scale).astype(np.float32).tolist()
    prompt = generator.integers(0, 5000, 100).tolist()
    for number in range(4):
        most = {"banned_token_ids": list(range(0, 5000, 7)), "logit_bias": {17: 5.0}}
        params = SamplingParams.from_settings({"sampler": sampler, **(most if number % 2 else {})})
        allowed = None if number < 2 else set(range(0, 5000, 2 if number == 2 else 5)) | {17, 19}
        expected, gap = plain_choice(row, params, number, prompt, allowed=allowed)
        if gap > BORDER:
            assert choose_one(row, params, number, prompt=prompt, allowed=allowed) == expected


def test_the_logits_stay_as_they_are():
    logits = array([1.0, 2.0, 3.0])
    params = SamplingParams(repetition_penalty=2, logit_bias={0: 1}, banned_token_ids=[1])
    choose(logits, params, History([2], params, 3), 5, bits([0, 1, 2], 3))
    assert logits.tolist() == [1, 2, 3]


def test_padding_of_the_vocabulary_is_never_drawn():
    for settings_ in ({"temperature": 0}, {"temperature": 5.0}, {"top_k": 2}):
        params = SamplingParams(**settings_)
        drawn = {choose_one([1, 1, 90, math.nan], params, key, vocab_size=2) for key in range(9)}
        assert drawn <= {0, 1}


def test_top_p_applies_after_temperature():
    row = [3.0, 2.0, 1.0, 0.0]
    for temperature, kept in ((10.0, {0, 1, 2}), (0.1, {0})):
        params = SamplingParams(temperature=temperature, top_p=0.6)
        assert {choose_one(row, params, key) for key in range(60)} == kept


@pytest.mark.parametrize(
    ("chosen", "drawn"),
    [
        # By themselves typical_p keeps 1 and 2, top_p 0 and 1, top_k 0 and 1.
        ({"typical_p": 0.45, "top_p": 0.5}, {1}),
        ({"typical_p": 0.45, "top_k": 2}, {0}),
        ({"top_p": 0.95, "top_k": 2}, {0, 1}),
        ({"top_p": 0.55, "top_k": 2}, {0}),
        ({"top_p": 0.5, "min_p": 0.7}, {0, 1}),
    ],
)
def test_each_filter_looks_at_what_those_before_it_left(chosen, drawn):
    row = np.log([0.4, 0.3, 0.2, 0.1]).tolist()
    params = SamplingParams(temperature=1.0, **chosen)
    assert {choose_one(row, params, key) for key in range(60)} == drawn


@given(row=ROW, temperature=st.floats(0.05, 5))
def test_temperature_divides_the_logits(row, temperature):
    scaled = apply_temperature(array(row), temperature).tolist()
    expected = softmax({i: x / temperature for i, x in enumerate(row)})
    assert softmax(dict(enumerate(scaled))) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-46, 1e-38, 1e-10])
def test_a_tiny_temperature_is_argmax(temperature):
    params = SamplingParams(temperature=temperature)
    assert choose_one([90.0, 90.5, -80.0, -math.inf], params) == 1


@pytest.mark.parametrize("temperature", [1e20, 1e38, 1e300])
def test_a_huge_temperature_makes_all_alike_but_what_is_ruled_out(temperature):
    params = SamplingParams(temperature=temperature)
    drawn = [choose_one([90.0, -math.inf, -80.0, 0.0], params, key) for key in range(300)]
    assert set(drawn) == {0, 2, 3}
    assert min(map(drawn.count, set(drawn))) > 70


def test_temperature_0_is_argmax_and_of_equals_the_lowest_id():
    params = SamplingParams(temperature=0, top_p=0.1, typical_p=0.1)
    assert choose_one([1.0, 7.0, 7.0, 2.0], params) == 1
    assert choose_one([3.0, 3.0], params) == 0


def test_a_bias_of_100_decides_as_in_the_api_of_openai():
    row = [20.0, 0.0, -20.0]
    for key in range(20):
        assert choose_one(row, SamplingParams(logit_bias={2: 100}), key) == 2
        assert choose_one(row, SamplingParams(logit_bias={0: -100, 2: -100}), key) == 1


@pytest.mark.parametrize("extreme", [3.4e38, 1e30])
def test_extreme_logits_give_a_token_and_no_warning(extreme):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for settings_ in ({}, {"top_k": 2}, {"top_p": 0.9}, {"typical_p": 0.9}, {"min_p": 0.1}):
            params = SamplingParams(temperature=0.01, repetition_penalty=1.5, **settings_)
            assert choose_one([0.0, extreme, -extreme, 1.0], params, prompt=[2]) == 1
        assert log_probabilities(array([0.0, extreme, -extreme]), 1, 3).logprob == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("chosen", [{"temperature": 0}, {}, {"top_k": 1}, {"top_p": 0.5}])
def test_a_row_that_is_not_of_numbers_has_no_token(value, chosen):
    params = SamplingParams(**chosen, banned_token_ids=[2])
    history, logits = History([], params, 3), array([value, 1, 0])
    assert choose(logits, params, history, 5) == NO_TOKEN
    assert "NaN" in no_token_error(logits, params, history).message


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_with_every_token_ruled_out_has_no_token_and_the_error_names_the_masks(temperature):
    params = SamplingParams(
        temperature=temperature, banned_token_ids=[0], no_repeat_ngram_size=1, choices=["a"]
    )
    history, row = History([1], params, 3), array([1, 2, 3])
    mask = bits([0, 1], 3)
    assert choose(row, params, history, 5) == 2
    assert choose(row, params, history, 5, mask) == NO_TOKEN
    message = no_token_error(row, params, history, mask).message
    assert "banned_token_ids and no_repeat_ngram_size and choices" in message
    assert choose(row, params, history, 5, bits([], 3)) == NO_TOKEN


@pytest.mark.parametrize("vocab_size", [31, 32, 33, 100])
def test_a_constraint_lets_through_exactly_the_tokens_of_its_bits(vocab_size):
    row = np.linspace(0, 1, vocab_size).tolist()
    for allowed in ({0}, {vocab_size - 1}, {3, 30}, set(range(1, vocab_size))):
        params = SamplingParams(temperature=1e30)
        drawn = {choose_one(row, params, n, allowed=allowed) for n in range(1500)}
        assert drawn == allowed


def test_a_mask_may_be_longer_or_shorter_than_the_vocabulary():
    params = SamplingParams(temperature=0)
    row, history = array(np.arange(70)), History([], params, 70)
    full = np.array([0xFFFFFFFF] * 4, dtype=np.uint32)
    assert choose(row, params, history, 0, full) == 69
    assert choose(row, params, history, 0, full[:2]) == 63


def test_seeded_draws_follow_the_distribution():
    row, draws = [2.0, 1.0, 0.0, -1.0, 1.5], 20000
    params = SamplingParams(temperature=0.7, min_p=0.02)
    stream, history = NoiseStream(11), History([], params, 5)
    tokens = [choose(array(row), params, history, stream.next()) for _ in range(draws)]
    shares = softmax({i: x / 0.7 for i, x in enumerate(row) if i != 3})
    for token, share in shares.items():
        deviation = math.sqrt(share * (1 - share) / draws)
        assert tokens.count(token) / draws == pytest.approx(share, abs=4 * deviation)
    assert 3 not in tokens


@given(row=ROW, top=st.integers(0, 14), data=st.data())
def test_log_probabilities_are_the_models_own_and_the_likeliest_first(row, top, data):
    token = data.draw(st.integers(0, len(row) - 1))
    shares = softmax(dict(enumerate(row)))
    result = log_probabilities(array(row), token, top)
    assert result.token_id == token
    assert result.logprob == pytest.approx(math.log(shares[token]), abs=1e-5)
    order = sorted(shares, key=lambda i: (-shares[i], i))[:top]
    assert [i for i, _ in result.top] == order
    for i, logprob in result.top:
        assert logprob == pytest.approx(math.log(shares[i]), abs=1e-5)


def test_log_probabilities_of_tokens_without_probability_are_minus_infinity():
    result = log_probabilities(array([0.0, -math.inf]), 1, 2)
    assert result.logprob == -math.inf
    assert dataclasses.astuple(result) == (1, -math.inf, ((0, 0.0), (1, -math.inf)))


def test_sampling_needs_no_torch():
    code = "import llamita.inference.sampling, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

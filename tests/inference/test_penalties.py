"""What looks back at the text: penalties, n-grams, and the masks of single tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import GenerationError
from llamita.inference.history import History, NGrams, TokenCounts
from llamita.inference.params import SamplingParams
from llamita.inference.penalties import (
    add_bias,
    apply_frequency_penalties,
    apply_repetition_penalty,
    mask_out,
)
from llamita.inference.sampling import choose
from tests.inference.plain_sampling import ROW, adjusted, repeats


def array(row) -> np.ndarray:
    return np.array(row, dtype=np.float32)


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits():
    logits = array([2, 4, -3, 1])
    assert apply_repetition_penalty(logits, np.array([1, 2]), 2.0).tolist() == [2, 2, -6, 1]
    assert logits.tolist() == [2, 4, -3, 1]


def test_rows_do_not_share_what_was_seen():
    params = SamplingParams(temperature=0, repetition_penalty=2.0)
    first, second = History([1, 2], params, 4), History([0], params, 4)
    logits = array([3, 4, -3, 1])
    assert [choose(logits, params, history, 0) for history in (first, second)] == [0, 1]
    first.append(0)
    assert [choose(logits, params, history, 0) for history in (first, second)] == [1, 1]
    assert second.seen.ids.tolist() == [0]


def test_frequency_counts_each_occurrence_and_presence_the_first():
    logits = apply_frequency_penalties(
        array([5, 5, 5]), np.array([0, 2]), array([3, 1]), frequency=0.5, presence=0.25
    )
    assert logits.tolist() == [3.25, 5, 4.25]


def test_frequency_and_presence_look_at_the_output_alone_and_repetition_at_the_prompt_too():
    params = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.5)
    history = History([1, 1, 2], params, 9)
    for token in (2, 3, 3):
        history.append(token)
    assert sorted(history.seen.ids.tolist()) == [1, 2, 3]
    counts = zip(history.written.ids.tolist(), history.written.counts.tolist(), strict=True)
    assert dict(counts) == {2: 1, 3: 2}


def test_a_history_keeps_nothing_that_no_setting_asks_for():
    history = History([1, 2, 3], SamplingParams(), 9)
    history.append(4)
    assert (history.seen, history.written, history.ngrams) == (None, None, None)


@pytest.mark.parametrize("length", [0, 1, 64, 65, 1000])
def test_counts_grow_with_the_text_and_leave_out_padding(length):
    tokens = [number * number % 301 for number in range(length)]
    counts = TokenCounts(250, tokens[:100])
    for token in tokens[100:]:
        counts.add(token)
    expected = {token: tokens.count(token) for token in tokens if token < 250}
    assert dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True)) == expected


@given(
    text=st.lists(st.integers(0, 2), max_size=14), size=st.integers(1, 5), split=st.integers(0, 14)
)
def test_an_ngram_repeats_if_the_text_holds_it_anywhere(text, size, split):
    ngrams = NGrams(size, text[:split])
    for token in text[split:]:
        ngrams.append(token)
    assert ngrams.repeating() == {token for token in range(3) if repeats(text, token, size)}


def test_bias_is_added_and_masks_leave_no_probability():
    logits = array([1, 2, 3])
    assert add_bias(logits, np.array([0, 2]), array([100, -100])).tolist() == [101, 2, -97]
    assert mask_out(logits, np.array([1])).tolist() == [1, -np.inf, 3]
    assert logits.tolist() == [1, 2, 3]


@given(
    row=ROW,
    penalty=st.floats(0.01, 100),
    frequency=st.floats(-2, 2),
    presence=st.floats(-2, 2),
    data=st.data(),
)
def test_all_penalties_together_are_those_of_the_plain_reference(
    row, penalty, frequency, presence, data
):
    token = st.integers(0, len(row) - 1)
    prompt, output = data.draw(st.lists(token)), data.draw(st.lists(token))
    params = SamplingParams(
        repetition_penalty=penalty,
        frequency_penalty=frequency,
        presence_penalty=presence,
        logit_bias=data.draw(st.dictionaries(token, st.floats(-100, 100))),
    )
    history = History(prompt, params, len(row))
    for token_id in output:
        history.append(token_id)
    logits = array(row)
    if history.seen:
        logits = apply_repetition_penalty(logits, history.seen.ids, penalty)
    if history.written:
        written = history.written
        logits = apply_frequency_penalties(logits, written.ids, written.counts, frequency, presence)
    logits = add_bias(logits, history.bias_ids, history.biases)
    expected = adjusted(row, params, prompt, output, None)
    assert dict(enumerate(logits.tolist())) == pytest.approx(expected, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "value"), [("logit_bias", {9: 1.0}), ("banned_token_ids", [3, 9])]
)
def test_a_token_outside_the_vocabulary_is_refused_by_name(name, value):
    params = SamplingParams(**{name: value})
    with pytest.raises(GenerationError, match=f"{name} names the token 9") as caught:
        History([], params, 9)
    assert "0 to 8" in caught.value.hint

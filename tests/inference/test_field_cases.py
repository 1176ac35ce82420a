"""Field cases 27 to 31: what people ask for and other systems crash on or get wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from llamita.errors import GenerationError
from llamita.inference.filters import keep_top_p
from llamita.inference.history import History
from llamita.inference.lm import LM
from llamita.inference.params import SamplingParams
from llamita.inference.penalties import apply_repetition_penalty
from llamita.inference.sampling import choose
from tests.inference.conftest import VOCAB

ALL = {"stop_token_ids": []}


def test_case_27_temperature_0_is_the_likeliest_token(lm, model):
    result = lm.generate([1, 2], temperature=0, max_tokens=1, **ALL)
    assert result.token_ids == [int(lm.logits([[1, 2]])[0, -1].argmax())]
    cool = lm.generate([1, 2], temperature=1e-9, max_tokens=1, seed=0, **ALL)
    assert cool.token_ids == result.token_ids


def test_case_27_top_k_0_is_off_and_1_is_greedy(lm):
    settings = {"temperature": 1, "seed": 1, "max_tokens": 8, **ALL}
    assert lm.generate("a", top_k=0, **settings) == lm.generate("a", **settings)
    greedy = lm.generate("a", temperature=0, max_tokens=8, **ALL)
    assert lm.generate("a", top_k=1, **settings) == greedy


@pytest.mark.parametrize("top_k", [VOCAB - 1, VOCAB, VOCAB + 1, 10**12])
def test_case_27_top_k_above_the_vocabulary(lm, top_k):
    settings = {"temperature": 1, "seed": 2, "max_tokens": 8, **ALL}
    result = lm.generate("a", top_k=top_k, **settings)
    if top_k >= VOCAB:
        assert result == lm.generate("a", **settings)
    assert len(result.token_ids) == 8


def test_case_27_an_empty_prompt(model, new_tokenizer):
    for prefix, first in (((257,), 257), ((), 256)):
        lm = LM(model, new_tokenizer(bos_prefix=prefix))
        result = lm.generate("", temperature=0, max_tokens=4, **ALL)
        assert result.prompt_token_ids == [first]
        assert result == lm.generate([first], temperature=0, max_tokens=4, **ALL)
        assert "".join(lm.stream("", temperature=0, max_tokens=4, **ALL)) == result.text


def test_case_27_a_batch_with_stop_tokens(lm):
    """Rows end at their own time, and none goes on behind its end."""
    prompts = [[1], [2, 3], [4, 5, 6], [7]]
    free = lm.generate(prompts, temperature=0, max_tokens=12, **ALL)
    stop = free[0].token_ids[4]
    batch = lm.generate(prompts, temperature=0, max_tokens=12, stop_token_ids=[stop])
    for whole, cut in zip(free, batch, strict=True):
        ids = whole.token_ids
        assert cut.token_ids == (ids[: ids.index(stop)] if stop in ids else ids)
        assert cut.finish_reason == ("stop" if stop in ids else "length")


@pytest.mark.parametrize("max_tokens", [0, 1, None])
def test_case_27_a_prompt_as_long_as_the_context(lm, max_tokens):
    result = lm.generate([1] * 48, max_tokens=max_tokens)
    assert (result.token_ids, result.text, result.finish_reason) == ([], "", "length")
    assert list(lm.stream([1] * 48, max_tokens=max_tokens)) == []
    assert [r.token_ids for r in lm.generate([[1] * 48, [1] * 47], max_tokens=0)] == [[], []]


def test_case_27_generating_leaves_the_model_in_its_mode(new_model):
    for training in (True, False):
        model = new_model(residual_dropout=0.5).train(training)
        lm = LM(model)
        first = lm.generate([1, 2], temperature=0, max_tokens=6, **ALL)
        assert model.training is training
        assert all(module.training is training for module in model.modules())
        assert lm.generate([1, 2], temperature=0, max_tokens=6, **ALL) == first


def test_case_28_the_repetition_penalty_divides_positive_and_multiplies_negative_logits():
    logits = np.array([2, 4, -3, 1], dtype=np.float32)
    assert apply_repetition_penalty(logits, np.array([1, 2]), 2.0).tolist() == [2, 2, -6, 1]


def test_case_28_rows_do_not_share_what_was_seen(lm):
    settings = {"temperature": 0, "repetition_penalty": 1.5, "max_tokens": 12, **ALL}
    prompts = [[1, 2, 3], [4], [5, 1, 2, 3, 9, 9]]
    assert lm.generate(prompts, **settings) == [lm.generate(p, **settings) for p in prompts]


def test_case_29_top_p_keeps_the_token_that_crosses_p_and_always_the_likeliest():
    logits = np.log(np.array([0.5, 0.3, 0.2], dtype=np.float32))
    assert [len(keep_top_p(logits, p)) for p in (0.0, 0.45, 0.6, 0.85, 1.0)] == [1, 1, 2, 3, 3]


def test_case_29_top_p_applies_after_temperature():
    logits = np.log(np.array([0.5, 0.3, 0.2], dtype=np.float32))
    for temperature, kept in ((1.0, {0, 1}), (0.1, {0}), (100.0, {0, 1, 2})):
        params = SamplingParams(temperature=temperature, top_p=0.7)
        history = History([], params, 3)
        drawn = {choose(logits, params, history, key) for key in range(200)}
        assert drawn == kept


def test_case_30_more_tokens_than_fit_end_with_length(lm):
    for max_tokens in (9, 10, 10**9, None):
        result = lm.generate([1] * 40, temperature=0, max_tokens=max_tokens, **ALL)
        assert (len(result.token_ids), result.finish_reason) == (8, "length")
        assert result.dropped_tokens == 0
    assert len(lm.generate([1] * 40, temperature=0, max_tokens=8, **ALL).token_ids) == 8


def test_case_30_max_tokens_0_gives_no_token(lm):
    result = lm.generate("abc", max_tokens=0)
    assert (result.text, result.token_ids, result.finish_reason) == ("", [], "length")
    assert [event.finish_reason for event in lm.stream_events("abc", max_tokens=0)] == ["length"]


def test_case_30_the_last_token_that_fits_is_the_models_own(lm):
    """No wrap of the cache: with the context nearly full tokens are what reading anew gives."""
    ids = list(range(40))
    for token_id in lm.generate(ids, temperature=0, max_tokens=None, **ALL).token_ids:
        with torch.no_grad():
            assert token_id == int(lm.model(torch.tensor([ids]))[0, -1].argmax())
        ids.append(token_id)
    assert len(ids) == 48


def test_case_30_a_prompt_too_long_is_refused_with_both_numbers_and_the_way_out(lm):
    for call in (lm.generate, lambda p: list(lm.stream(p)), lambda p: list(lm.stream_events(p))):
        with pytest.raises(GenerationError, match=r"49 tokens.*48\.\n.*'slide'"):
            call([1] * 49)


def test_case_31_half_a_character_is_never_streamed(scripted):
    lm = scripted("né🦙 ok")
    assert list(lm.stream("?", temperature=0, max_tokens=10)) == ["n", "é", "🦙", " ", "o", "k"]
    shown = [event.text for event in lm.stream_events("?", temperature=0, max_tokens=10)]
    assert shown == ["n", "", "é", "", "", "", "🦙", " ", "o", "k"]
    assert list(lm.stream("?", temperature=0, max_tokens=10, stop="🦙")) == ["n", "é"]
    assert lm.generate("?", temperature=0, max_tokens=5).text == "né\ufffd"

"""Settings through `LM`: presets, log-probabilities, constraints, drafts; one engine for all."""

from __future__ import annotations

import gc
import json
import math
import threading

import pytest
import torch

import llamita
from llamita.errors import ConfigError, GenerationError
from llamita.inference.lm import LM
from llamita.inference.params import SAMPLERS

ALL = {"stop_token_ids": [], "max_tokens": 12}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_preset_is_its_settings_and_those_given_go_before(lm, sampler):
    expected = lm.generate("ab", seed=1, **ALL, **SAMPLERS[sampler])
    assert lm.generate("ab", seed=1, sampler=sampler, **ALL) == expected
    hot = {**SAMPLERS[sampler], "temperature": 1.5}
    assert lm.generate("ab", seed=1, sampler=sampler, temperature=1.5, **ALL) == lm.generate(
        "ab", seed=1, **ALL, **hot
    )


def test_an_unknown_preset_is_refused(lm):
    with pytest.raises(GenerationError, match=r"sampler is 'gpt'.*\n.*hermes, armgpt"):
        lm.generate("a", sampler="gpt")


def test_logprobs_are_the_models_own(lm):
    result = lm.generate([1, 2], logprobs=3, temperature=2.0, top_k=5, seed=0, **ALL)
    ids = [1, 2, *result.token_ids]
    expected = lm.logits([ids]).log_softmax(-1)[0, 1:-1]
    assert [each.token_id for each in result.logprobs] == result.token_ids
    for each, row in zip(result.logprobs, expected, strict=True):
        assert each.logprob == pytest.approx(row[each.token_id].item(), abs=1e-4)
        best = row.topk(3)
        assert [token_id for token_id, _ in each.top] == best.indices.tolist()
        assert [value for _, value in each.top] == pytest.approx(best.values.tolist(), abs=1e-4)
    events = lm.stream_events([1, 2], logprobs=0, temperature=2.0, top_k=5, seed=0, **ALL)
    assert [event.logprob.logprob for event in events] == pytest.approx(
        [each.logprob for each in result.logprobs], abs=1e-4
    )


def test_logprobs_are_absent_unless_asked_for(lm):
    assert lm.generate("a", **ALL).logprobs is None
    assert lm.generate("a", max_tokens=0, logprobs=1).logprobs == []
    many = lm.generate("a", logprobs=1000, **ALL).logprobs
    assert {len(each.top) for each in many} == {258}


def test_logprobs_follow_the_tokens_that_are_given(scripted):
    lm = scripted([104, 105, 256, 33])
    plain = lm.generate("?", temperature=0, logprobs=0)
    kept = lm.generate("?", temperature=0, logprobs=0, include_stop_token=True)
    assert [each.token_id for each in plain.logprobs] == plain.token_ids == [104, 105]
    assert [each.token_id for each in kept.logprobs] == kept.token_ids == [104, 105, 256]
    assert (plain.text, kept.text) == ("hi", "hi")
    assert (kept.finish_reason, kept.stop_reason) == ("stop", 256)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"banned_token_ids": [258]}, "banned_token_ids holds the token id 258"),
        ({"logit_bias": {300: 1}}, "logit_bias holds the token id 300"),
        ({"regex": "("}, "regex"),
        ({"schema": {"type": "nothing"}}, "schema"),
        ({"grammar": "start: missing"}, "grammar"),
        ({"regex": "a", "choices": ["b"]}, "together"),
    ],
)
@pytest.mark.parametrize("method", ["generate", "stream", "stream_events", "request"])
def test_what_cannot_be_served_is_refused_before_anything_runs(lm, method, settings, message):
    with pytest.raises(GenerationError, match=message):
        getattr(lm, method)("a", **settings)


def test_a_constraint_without_a_tokenizer_is_refused(model):
    with pytest.raises(GenerationError, match="no tokenizer"):
        LM(model).generate([1], regex="a+")


def test_biased_and_banned_tokens(lm):
    assert lm.generate("a", temperature=0, logit_bias={65: 100}, max_tokens=3).text == "AAA"
    free = lm.generate("a", temperature=0, **ALL)
    banned = lm.generate("a", temperature=0, banned_token_ids=free.token_ids, **ALL)
    assert not set(banned.token_ids) & set(free.token_ids)


def test_constraints_hold_what_is_written(lm):
    prompts = ["a", "bc", "", "defg"]
    settings = {"temperature": 1.5, "seed": 0, "max_tokens": 30}
    for result in lm.generate(prompts, choices=["yes", "no", "née"], **settings):
        assert result.text in ("yes", "no", "née")
        assert result.finish_reason == "stop"
    for result in lm.generate(prompts, regex=r"[0-9]{3}-[a-z]{2}", **settings):
        assert result.text[3] == "-"
        assert len(result.text) == 6
    schema = {"enum": [{"a": 1}, {"b": True}]}
    for result in lm.generate(prompts, schema=schema, **settings):
        assert json.loads(result.text) in ({"a": 1}, {"b": True})
    grammar = 'start: "(" start ")" | "x"'
    shown = "".join(lm.stream("a", grammar=grammar, temperature=0, max_tokens=7))
    assert shown.strip("()") in ("x", "")


def test_drafts_change_no_token(lm):
    prompt = list(b"the cat sat on the mat, the cat sat on the ")
    for settings in ({"temperature": 0}, {"temperature": 0.7, "seed": 3, "top_p": 0.9}):
        settings = {**settings, "stop_token_ids": [], "max_tokens": None, "logprobs": 1}
        plain = lm.generate(prompt[:20], **settings)
        drafted = lm.generate(prompt[:20], speculative=True, **settings)
        assert (drafted.text, drafted.token_ids) == (plain.text, plain.token_ids)
        for mine, other in zip(drafted.logprobs, plain.logprobs, strict=True):
            assert math.isclose(mine.logprob, other.logprob, abs_tol=1e-4)


def test_streams_of_one_model_may_be_read_in_turns(lm):
    settings = {"temperature": 1, "seed": 4, **ALL}
    prompts = ["ab", "c", "defgh"]
    streams = [lm.stream(prompt, **settings) for prompt in prompts]
    texts = ["", "", ""]
    for turn in range(100):
        texts[turn % 3] += next(streams[turn % 3], "")
    assert texts == [lm.generate(prompt, **settings).text for prompt in prompts]
    assert not lm.engine.has_work


def test_several_threads_may_use_one_model(lm):
    settings = {"temperature": 1, "seed": 5, **ALL}
    prompts = [[number, number + 1, number % 7] for number in range(8)]
    expected = LM(lm.model, lm.tokenizer).generate(prompts, **settings)
    results = {}
    start = threading.Barrier(len(prompts))

    def work(number):
        start.wait()
        if number % 2:
            results[number] = lm.generate(prompts[number], **settings)
        else:
            results[number] = [
                event.token_id for event in lm.stream_events(prompts[number], **settings)
            ]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, alone in enumerate(expected):
        assert results[number] == (alone if number % 2 else alone.token_ids)
    assert not lm.engine.has_work


def test_a_stream_that_is_given_up_gives_up_its_place(lm):
    settings = {"stop_token_ids": [], "max_tokens": 30}
    closed, forgotten = lm.stream_events("ab", **settings), lm.stream(["c", "d"], **settings)
    next(closed), next(forgotten)
    assert lm.engine.has_work
    closed.close()
    del forgotten
    gc.collect()
    assert not lm.engine.has_work
    unread = lm.stream("never read", **settings)
    assert not lm.engine.has_work
    assert "".join(unread)
    assert lm.engine.backend.slots <= 4


def test_an_error_of_one_call_leaves_the_others(lm):
    other = lm.stream("ab", temperature=0, **ALL)
    first = next(other)
    with pytest.raises(GenerationError, match="49 tokens"):
        lm.generate([1] * 49)
    assert first + "".join(other) == lm.generate("ab", temperature=0, **ALL).text


def test_a_request_is_what_generate_would_ask_the_engine(lm):
    request = lm.request("ab", temperature=0, max_tokens=5, stop_token_ids=[])
    events = []
    lm.engine.add(request, events.append)
    while lm.engine.has_work:
        lm.engine.step()
    expected = lm.generate("ab", temperature=0, max_tokens=5, stop_token_ids=[])
    assert [event.token_id for event in events] == expected.token_ids
    with pytest.raises(GenerationError, match="2 prompts"):
        lm.request(["a", "b"])


def test_weights_that_change_are_noticed(new_model):
    model = new_model()
    lm = LM(model)
    before = lm.generate([1, 2, 3], temperature=0, **ALL)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(-1)
    after = lm.generate([1, 2, 3], temperature=0, **ALL)
    assert after != before
    assert after == LM(model).generate([1, 2, 3], temperature=0, **ALL)


def test_the_cache_may_have_another_precision_than_the_weights(model):
    exact = LM(model).generate([1, 2, 3], temperature=0, **ALL)
    for dtype in ("float32", torch.float32):
        assert LM(model, kv_cache_dtype=dtype).generate([1, 2, 3], temperature=0, **ALL) == exact
    narrow = LM(model, kv_cache_dtype="bfloat16")
    assert len(narrow.generate([1, 2, 3], temperature=0, **ALL).token_ids) == 12
    assert narrow.engine.backend.slot_bytes(64) * 2 == LM(model).engine.backend.slot_bytes(64)


@pytest.mark.parametrize("dtype", ["int8", torch.float16, "q8_0"])
def test_a_cache_precision_that_cannot_be_is_told_before_the_model_is_looked_for(dtype):
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ConfigError, match=f"kv_cache_dtype is '{name}'"):
        llamita.load("nowhere", kv_cache_dtype=dtype)

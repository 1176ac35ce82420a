"""Settings that cannot be are refused by name, value and range."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from llamita.errors import GenerationError
from llamita.inference.params import SAMPLERS, SamplingParams


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", -1),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("temperature", None),
        ("top_k", -1),
        ("top_k", 2.0),
        ("top_p", 1.01),
        ("top_p", -0.01),
        ("min_p", 1.5),
        ("min_p", math.nan),
        ("repetition_penalty", 0),
        ("repetition_penalty", -2),
        ("repetition_penalty", 1e-50),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 1.0),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", [3]),
        ("stop", 3),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", ["a"]),
        ("stop_token_ids", 5),
        ("typical_p", 1.1),
        ("typical_p", True),
        ("repetition_penalty", 10**400),
        ("frequency_penalty", 2.1),
        ("frequency_penalty", math.nan),
        ("frequency_penalty", True),
        ("presence_penalty", -2.1),
        ("presence_penalty", "1"),
        ("logit_bias", [(1, 2.0)]),
        ("logit_bias", "1"),
        ("logit_bias", ((1, 2.0, 3.0),)),
        ("no_repeat_ngram_size", -1),
        ("no_repeat_ngram_size", 2.0),
        ("no_repeat_ngram_size", True),
        ("banned_token_ids", 5),
        ("banned_token_ids", [-1]),
        ("banned_token_ids", [True]),
        ("banned_token_ids", ["5"]),
        ("include_stop_token", 1),
        ("include_stop_token", None),
        ("logprobs", -1),
        ("logprobs", 1001),
        ("logprobs", True),
        ("logprobs", 1.0),
        ("overflow", "wrap"),
        ("overflow", None),
        ("overflow", 3),
        ("speculative", -1),
        ("speculative", 65),
        ("speculative", 2.0),
        ("speculative", None),
        ("schema", 3),
        ("schema", False),
        ("schema", []),
        ("regex", ""),
        ("regex", 3),
        ("grammar", ""),
        ("grammar", ["start: x"]),
        ("choices", []),
        ("choices", "yes"),
        ("choices", [""]),
        ("choices", [1]),
    ],
)
def test_a_wrong_value_is_refused_with_name_value_and_range(name, value):
    with pytest.raises(GenerationError) as caught:
        SamplingParams(**{name: value})
    assert name in caught.value.message
    assert repr(value) in caught.value.message
    assert name in caught.value.hint


@pytest.mark.parametrize("name", ["top_k", "seed", "max_tokens", "logprobs", "temperature"])
def test_a_number_too_long_to_write_out_is_refused_all_the_same(name):
    value = -(10**6000)
    with pytest.raises(GenerationError, match=f"{name} is a number of thousands of digits"):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("bias", "part"),
    [
        ({"one": 1.0}, "'one'"),
        ({1.5: 1.0}, "1.5"),
        ({True: 1.0}, "True"),
        ({-1: 1.0}, "-1"),
        ({"-1": 1.0}, "'-1'"),
        ({"²": 1.0}, "'²'"),
        ({"9" * 5000: 1.0}, "999"),
        ({7: 100.5}, r"logit_bias\[7\] is 100.5"),
        ({7: math.nan}, r"logit_bias\[7\] is nan"),
        ({7: -math.inf}, r"logit_bias\[7\] is -inf"),
        ({7: "1"}, r"logit_bias\[7\] is '1'"),
        ({7: True}, r"logit_bias\[7\] is True"),
        ({7: 1.0, "7": 2.0}, "token 7 twice"),
    ],
)
def test_a_wrong_bias_is_refused_with_its_token(bias, part):
    with pytest.raises(GenerationError, match=part) as caught:
        SamplingParams(logit_bias=bias)
    assert "logit_bias" in caught.value.message


@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ('{"type": ', "not JSON"),
        ("[1]", "schema is"),
        ({"a": {1, 2}}, "cannot be written as JSON"),
        ({"a": math.nan}, "cannot be written as JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_schema_that_is_no_json_object_is_refused(schema, part):
    with pytest.raises(GenerationError, match=part) as caught:
        SamplingParams(schema=schema)
    assert "JSON schema" in caught.value.hint


def test_constraints_exclude_each_other():
    with pytest.raises(GenerationError, match="regex and choices are given together"):
        SamplingParams(regex="a", choices=["a"])


def test_values_at_the_borders_are_taken():
    params = SamplingParams(
        max_tokens=0, temperature=0, top_k=0, top_p=0, min_p=1, seed=2**63 - 1, stop="end"
    )
    assert params.stop == ("end",)
    assert SamplingParams(stop=None).stop == ()
    assert SamplingParams(max_tokens=None, stop_token_ids=[]).stop_token_ids == ()


def test_an_unknown_setting_is_named_with_the_nearest():
    with pytest.raises(GenerationError) as caught:
        SamplingParams.from_settings({"temprature": 1})
    assert "'temprature'" in caught.value.message
    assert "'temperature'" in caught.value.hint


def test_params_are_equal_and_hash_alike_whatever_form_the_values_had():
    first = SamplingParams(
        temperature=1,
        top_k=np.int64(3),
        top_p=np.float32(0.5),
        logit_bias={"7": 1, 3: -2.5},
        stop=["a"],
        banned_token_ids=[np.int32(4)],
        schema='{"b": 1,  "a": "é"}',
        speculative=True,
    )
    second = SamplingParams(
        temperature=1.0,
        top_k=3,
        top_p=0.5,
        logit_bias={3: -2.5, 7: 1.0},
        stop=("a",),
        banned_token_ids=(4,),
        schema={"b": 1, "a": "é"},
        speculative=8,
    )
    assert first == second
    assert hash(first) == hash(second)
    assert first.logit_bias == ((3, -2.5), (7, 1.0))
    assert first.schema == '{"b":1,"a":"é"}'
    assert {type(first.top_k), type(first.top_p)} == {int, float}
    assert dataclasses.replace(first, seed=1) == dataclasses.replace(second, seed=1)


def test_a_constraint_is_told_by_kind_and_value():
    assert SamplingParams().constraint is None
    assert SamplingParams(schema=True).constraint == ("schema", '{"type":"object"}')
    assert SamplingParams(regex="a+").constraint == ("regex", "a+")
    assert SamplingParams(grammar="start: x").constraint == ("grammar", "start: x")
    assert SamplingParams(choices=["b", "a", "b"]).constraint == ("choices", ("b", "a"))


def test_speculative_is_off_or_the_longest_draft():
    lengths = [SamplingParams(speculative=value).speculative for value in (False, True, 0, 64)]
    assert lengths == [0, 8, 0, 64]


def test_samplers_set_what_is_not_given():
    hermes = SamplingParams.from_settings({"sampler": "hermes", "top_k": 7, "seed": 3})
    assert hermes == SamplingParams(
        temperature=0.8, top_k=7, top_p=0.95, repetition_penalty=1.1, seed=3
    )
    llama = SamplingParams.from_settings({"sampler": "llama"})
    assert llama == SamplingParams(temperature=0.6, top_p=0.9)
    assert SamplingParams.from_settings({"sampler": "greedy"}).temperature == 0
    assert SamplingParams.from_settings({"sampler": "armgpt"}).include_stop_token
    assert SamplingParams.from_settings({"sampler": None}) == SamplingParams()


@pytest.mark.parametrize("sampler", ["hermess", "", 3, ["hermes"]])
def test_an_unknown_sampler_is_refused_with_those_there_are(sampler):
    with pytest.raises(GenerationError, match="sampler is") as caught:
        SamplingParams.from_settings({"sampler": sampler})
    assert repr(sampler) in caught.value.message
    assert all(name in caught.value.hint for name in SAMPLERS)


def test_params_need_neither_torch_nor_numpy():
    code = (
        "import llamita.inference.params, sys; sys.exit(bool({'torch', 'numpy'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_banned_tokens_may_be_told_as_none() -> None:
    assert SamplingParams(banned_token_ids=None) == SamplingParams()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("num_beams", "no beam search"),
        ("max_new_tokens", "called max_tokens"),
        ("stop_strings", "called stop"),
        ("do_sample", "temperature=0"),
        ("response_format", "schema takes"),
    ],
)
def test_names_of_other_systems_are_told_what_they_are_here(name: str, words: str) -> None:
    with pytest.raises(GenerationError, match=f"no generation setting '{name}'") as caught:
        SamplingParams.from_settings({name: 1})
    assert words in (caught.value.hint or "")


def test_a_number_without_end_is_told_to_be_none() -> None:
    with pytest.raises(GenerationError) as caught:
        SamplingParams(temperature=float("inf"))
    assert caught.value.hint == "temperature must be a finite number, 0 or more."


def test_settings_may_come_ready_made() -> None:
    params = SamplingParams(seed=3, top_k=5)
    assert SamplingParams.from_settings({"params": params}) is params
    for settings in ({"params": params, "seed": 4}, {"params": {"seed": 4}}):
        with pytest.raises(GenerationError, match="no generation setting 'params'"):
            SamplingParams.from_settings(settings)


def test_true_is_any_object_also_as_text() -> None:
    assert SamplingParams(schema="true") == SamplingParams(schema={"type": "object"})  # type: ignore[arg-type]

"""Settings that cannot be are refused by name, value and range."""

from __future__ import annotations

import math

import pytest

from llamita.errors import GenerationError
from llamita.inference.params import SamplingParams


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
    ],
)
def test_a_wrong_value_is_refused_with_name_value_and_range(name, value):
    with pytest.raises(GenerationError) as caught:
        SamplingParams(**{name: value})
    assert name in caught.value.message
    assert repr(value) in caught.value.message
    assert name in caught.value.hint


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

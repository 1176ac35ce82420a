"""Rotary settings are compared as they turn queries and keys, not as they are spelled."""

from __future__ import annotations

import math
from typing import Any

import pytest

from llamita.inference.lm import LM
from llamita.shipping.verify import Comparison, compare

from .test_compare import make

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR, DYNAMIC = ({"rope_type": kind, "factor": 4.0} for kind in ("linear", "dynamic"))


def compared(
    left: dict[str, Any] | None, right: dict[str, Any] | None, **fields: Any
) -> Comparison:
    """Two equal models with these scalings; `fields` are the second one's."""
    a = make(rope_scaling=left, head_dim=64)
    return compare(LM(a), LM(make(rope_scaling=right, head_dim=64, **fields)))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (YARN, {**YARN, "beta_fast": 32.0, "beta_slow": 1.0}),
        (YARN, {**YARN, "attention_factor": 0.1 * math.log(4) + 1}),
        (YARN, {**YARN, "truncate": True}),
        (YARN, {**YARN, "mscale": 0.7}),
        ({"rope_type": "yarn", "factor": 4.0}, {**YARN, "original_max_position_embeddings": 128}),
        (None, {"rope_type": "linear", "factor": 1.0}),
        (LINEAR, {"rope_type": "linear", "factor": 4}),
        (
            LLAMA3,
            {
                **LLAMA3,
                "low_freq_factor": 2.0,
                "high_freq_factor": 8.0,
                "original_max_position_embeddings": 128,
            },
        ),
        ({**LLAMA3, "original_max_position_embeddings": 2}, {**LINEAR, "factor": 8.0}),
    ],
)
def test_scalings_that_act_alike_are_the_same(
    left: dict[str, Any] | None, right: dict[str, Any] | None
) -> None:
    for a, b in ((left, right), (right, left)):
        comparison = compared(a, b)
        assert comparison.same, comparison.differences
        assert comparison.max_logit_gap == pytest.approx(0, abs=2e-6)
        assert len(comparison.notes) == (0 if left == right else 1)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (YARN, {**YARN, "beta_fast": 31.0, "truncate": False}),
        (YARN, {**YARN, "attention_factor": 1.1}),
        (LINEAR, {"rope_type": "linear", "factor": 4.001}),
        (LLAMA3, {**LLAMA3, "high_freq_factor": 4.001}),
        (DYNAMIC, None),
        (DYNAMIC, {"rope_type": "dynamic", "factor": 2.0}),
    ],
)
def test_scalings_that_act_otherwise_differ(
    left: dict[str, Any] | None, right: dict[str, Any] | None
) -> None:
    differences = compared(left, right).differences
    assert f"rope_scaling is {left} in A and {right} in B." in differences


@pytest.mark.parametrize("scaling", [DYNAMIC, {"rope_type": "yarn", "factor": 4.0}])
def test_a_context_from_which_a_scaling_starts_is_part_of_it(scaling: dict[str, Any]) -> None:
    differences = compared(scaling, scaling, max_position_embeddings=256).differences
    assert "max_position_embeddings is 128 in A and 256 in B." in differences


def test_the_context_alone_is_a_note() -> None:
    for scaling in (None, YARN, LINEAR):
        comparison = compared(scaling, scaling, max_position_embeddings=256)
        assert comparison.same
        assert comparison.notes == ["max_position_embeddings is 128 in A and 256 in B."]


def test_another_base_is_told_alone() -> None:
    assert compared(YARN, YARN, rope_theta=10000.1).differences[:1] == [
        "rope_theta is 10000.0 in A and 10000.1 in B."
    ]
    assert len(compared(YARN, YARN, rope_theta=10000.1).differences) == 1

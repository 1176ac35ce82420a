"""The number format is chosen by what this machine does faster."""

from __future__ import annotations

import pytest
import torch

from llamita.training.machine import precision

CPU = torch.device("cpu")


def _pretend(monkeypatch: pytest.MonkeyPatch, bfloat16_seconds: float) -> None:
    seconds = {torch.float32: 1.0, torch.bfloat16: bfloat16_seconds}
    monkeypatch.setattr(precision, "is_slow", lambda dtype: seconds[dtype] > 2)
    monkeypatch.setattr(precision, "product_seconds", lambda dtype, *shape: seconds[dtype])


def test_bfloat16_is_chosen_where_it_is_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, 0.5)
    name, reason = precision.choose_precision("auto", CPU)
    assert name == "bfloat16"
    assert "2.0 times" in reason


@pytest.mark.parametrize("bfloat16_seconds", [0.9, 1.5, 8.0])
def test_float32_stays_where_bfloat16_gains_little_or_is_emulated(
    monkeypatch: pytest.MonkeyPatch, bfloat16_seconds: float
) -> None:
    _pretend(monkeypatch, bfloat16_seconds)
    assert precision.choose_precision("auto", CPU)[0] == "float32"


def test_large_products_are_not_timed_where_they_would_take_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(precision, "is_slow", lambda dtype: True)
    monkeypatch.setattr(precision, "product_seconds", None)
    assert precision.choose_precision("auto", CPU)[0] == "float32"


def test_a_wish_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, 8.0)
    assert precision.choose_precision("bfloat16", CPU)[0] == "bfloat16"


def test_the_probe_measures_real_products() -> None:
    assert precision.product_seconds(torch.float32, CPU, 8, 64) > 0

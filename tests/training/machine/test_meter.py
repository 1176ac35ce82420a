"""What a run gets out of its machine, and what of it stands in the log."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from llamita.config import ModelConfig
from llamita.errors import Interrupted
from llamita.evaluation.machine import matrix_peak
from llamita.training.machine.meter import Meter, training_flops
from llamita.training.records.metrics import read_metrics
from llamita.training.records.observer import SILENT, Observer
from llamita.training.run import train
from tests.training.recipes import small_recipe

SHAPE: dict[str, Any] = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def _matrices(config: ModelConfig) -> int:
    """Numbers that every token is multiplied with, and the norms."""
    layer = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64
    return 2 * layer + 64 + 1000 * 64


@pytest.mark.parametrize("tied", [True, False])
def test_flops_count_the_table_once_and_half_of_the_context(tied: bool) -> None:
    config = ModelConfig(**SHAPE, tie_word_embeddings=tied)
    # Scores and values, 2 operations a product, forward once and backward twice, half the context.
    attention = 2 * (2 * 2 * 3) * 64 * (256 / 2)
    assert training_flops(config, 256) == 6 * _matrices(config) + attention


def test_a_sliding_window_takes_off_what_it_hides() -> None:
    plain, windowed = ModelConfig(**SHAPE), ModelConfig(**SHAPE, sliding_window=64)
    assert training_flops(windowed, 64) == training_flops(plain, 64)
    seen = sum(min(t, 64) for t in range(256)) / 256
    base = training_flops(plain, 256) - 12 * 2 * 64 * 128
    assert training_flops(windowed, 256) == pytest.approx(base + 12 * 2 * 64 * seen, rel=0.01)


def test_the_peak_of_a_machine_is_measured_once() -> None:
    peak = matrix_peak("float32")
    assert 1e8 < peak < 1e16
    assert matrix_peak("float32") == peak


def test_a_meter_tells_the_mean_rate_since_it_was_last_asked() -> None:
    meter = Meter(ModelConfig(**SHAPE), 256)
    meter.start("float32", "cpu")
    meter.peak_flops = 1000 * meter.flops_per_token
    meter.add(300, 1.0)
    meter.add(100, 1.0)
    values = meter.take()
    assert (values["tokens_per_second"], values["mfu"]) == (200.0, 0.2)
    assert values["peak_memory_mb"] > 1
    meter.add(500, 1.0)
    assert meter.take()["tokens_per_second"] == 500.0


def test_the_log_of_a_run_has_its_figures_and_where_it_was_resumed(
    data: Path, tmp_path: Path
) -> None:
    logged: list[dict[str, Any]] = []

    def stop(now: int, *rest: Any) -> None:
        if now == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=Observer(lambda text: None, stop))
    observer = Observer(lambda text: None, SILENT.on_step, on_log=logged.append)
    train(data, tmp_path / "run", observer=observer)
    lines = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in line]
    for line in lines:
        assert line["gradient_norm"] > 0
        assert line["tokens_per_second"] > 0
        assert 0 < line["mfu"] < 2
        assert line["peak_memory_mb"] > 1
        assert math.isfinite(line["seconds"])
    assert [line["step"] for line in lines if "peak_flops" in line] == [1, 5]
    assert [line.get("resumed_after") for line in lines] == [None] * 4 + [4, None]
    assert [values["loss"] for values in logged] == [line["loss"] for line in lines[4:]]

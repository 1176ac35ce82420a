"""What a training run shows on stderr while it goes."""

from __future__ import annotations

import pytest

from llamita.cli import progress
from llamita.cli.training_progress import training_observer


def test_a_line_tells_loss_rate_share_of_the_peak_and_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
    with training_observer() as observer:
        observer.on_step(1, 20, 9.0, 2000.0)
        observer.on_log({"mfu": 0.714, "peak_memory_mb": 940.0})
        observer.on_step(2, 20, 2.5, 3000.0)
        observer.on_log({"mfu": 0.7, "peak_memory_mb": 940.0, "cuda_peak_memory_mb": 12_000.0})
        observer.on_step(3, 20, 2.4, 3000.0)
        observer.on_log({})
        observer.on_step(4, 20, 2.3, 3000.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("loss 9.000  2,000 tokens/s")
    assert lines[1].endswith("loss 2.500  3,000 tokens/s  MFU 71 %  0.9 GB")
    assert lines[2].endswith("loss 2.400  3,000 tokens/s  MFU 70 %  12.0 GB")
    assert lines[3].endswith("loss 2.300  3,000 tokens/s")

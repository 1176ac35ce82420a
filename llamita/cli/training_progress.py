"""A training run's progress in the terminal: a bar with loss, rate, share of the peak, memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llamita.cli.progress import progress_bar
from llamita.training.records.observer import Observer


@contextmanager
def training_observer() -> Iterator[Observer]:
    """An observer that draws on stderr until the block ends."""
    with progress_bar("training", None, "steps") as bar:
        machine = ""

        def on_log(values: dict[str, Any]) -> None:
            nonlocal machine
            share, memory = values.get("mfu"), values.get("peak_memory_mb")
            memory = values.get("cuda_peak_memory_mb", memory)
            machine = "" if share is None else f"  MFU {100 * share:.0f} %"
            machine += "" if memory is None else f"  {memory / 1e3:.1f} GB"

        def on_step(step: int, steps: int, loss: float, tokens_per_second: float) -> None:
            bar.total = steps
            bar.update(step, f"loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s{machine}")

        yield Observer(say=bar.say, on_step=on_step, on_log=on_log)

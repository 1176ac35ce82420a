"""A training run's progress in the terminal: a bar with loss, rate and time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llamita.cli.progress import progress_bar
from llamita.training.trainer import Observer


@contextmanager
def training_observer() -> Iterator[Observer]:
    """An observer that draws on stderr until the block ends."""
    with progress_bar("training", None, "steps") as bar:

        def on_step(step: int, steps: int, loss: float, tokens_per_second: float) -> None:
            bar.total = steps
            bar.update(step, f"loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s")

        yield Observer(say=bar.say, on_step=on_step)

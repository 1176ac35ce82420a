"""What was planned: a run, what it takes and what it gives."""

from __future__ import annotations

from dataclasses import dataclass

from llamita.training.planning.forecast import Forecast, Training
from llamita.training.planning.pilot import Measured
from llamita.training.planning.shapes import Candidate


@dataclass(frozen=True)
class Plan:
    """A run that fits, and what it is expected to take and to give.

    Attributes:
        candidate: its shape, recipe and steps.
        seconds: of the whole command `llamita train`, from start to end.
        forecast: its validation bits per byte at the end.
        training: what it learns with.
        budget_seconds: the time it was planned for.
        most_steps: how many would fit that time.
        step_seconds: of one of them.
        effective_tokens: as many new tokens are worth what is read, some of it again.
        pilot: the short run the forecast begins with.
        ram_bytes: at its fullest moment, of the device where that is no CPU.
        disk_bytes: of the run's folder at its fullest.
    """

    candidate: Candidate
    seconds: float
    forecast: Forecast
    training: Training
    budget_seconds: float
    most_steps: int
    step_seconds: float
    effective_tokens: float
    pilot: Measured
    ram_bytes: int
    disk_bytes: int

    @property
    def parameters(self) -> int:
        return self.candidate.shape.config.count_parameters()

    @property
    def steps(self) -> int:
        return self.candidate.steps

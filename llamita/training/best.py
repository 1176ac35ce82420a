"""Which validation of a run was the best, and when there have been enough without a better one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class BestSoFar:
    """The lowest validation `loss` so far and its `step`; None before the first.

    `stale` counts the validations since. A run with a `patience` other than 0 ends at so many.
    """

    def __init__(self, patience: int = 0) -> None:
        self._patience = patience
        self.reset()

    def reset(self) -> None:
        """Forget everything, as for other data."""
        self.loss = math.inf
        self.step: int | None = None
        self.stale = 0

    def note(self, loss: float, step: int) -> bool:
        """Take a validation into account; whether it is the best so far."""
        if loss < self.loss:
            self.loss, self.step, self.stale = loss, step, 0
            return True
        self.stale += 1
        return False

    @property
    def ends_run(self) -> bool:
        """Whether there were as many validations in a row without a better loss as allowed."""
        return 0 < self._patience <= self.stale

    @property
    def described(self) -> str:
        """Why a run ends."""
        return (
            f"{self.stale} validations without a better loss than {self.loss:.3f} after step "
            f"{self.step} (watch.patience)"
        )

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint's `progress`."""
        return {"best_loss": self.loss, "best_step": self.step, "stale_validations": self.stale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; those of earlier versions have the loss alone."""
        self.loss = state["best_loss"]
        self.step = state.get("best_step")
        self.stale = int(state.get("stale_validations", 0))

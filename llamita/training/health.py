"""Is a step worth taking? Losses that are no numbers or leap up, gradients out of proportion.

One bad batch, or one overflow, can undo days of training. A bad step is skipped: weights and
optimizer stay as they are, and the run goes on with the next batch. Many in a row mean that the
run itself has gone wrong.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from llamita.errors import TrainingError
from llamita.model.sharded import own_part
from llamita.training.ranks.world import World
from llamita.training.settings.recipe import Health

_RECENT = 64  # good steps whose medians a step is held against
_WARM_UP = 16  # good steps before which nothing counts as a spike
_LEAP = 1.5  # nats above the usual loss that may always be: 4.5 times the perplexity


@dataclass(frozen=True)
class BadStep:
    """Why a step was skipped. `text` has the values in words."""

    kind: Literal["nonfinite", "spike"]
    text: str


class HealthGuard:
    """Judges each step by its loss and gradient norm, which the step has measured anyway.

    A step is a spike where its gradient norm is above `spike_factor` times the median of the last
    good steps and above `clip_norm`: gradients that are not even clipped do no harm, and where a
    model has learnt nearly all there is, norms differ by orders of magnitude.

    It is one as well where its loss is above their median loss by more than `spike_factor` times
    the median absolute deviation from it, and by more than 1.5 nats. Ten of these deviations are
    6.7 standard deviations of what is normally distributed; the second bound leaves large batches
    alone, which hardly differ, until a loss leaps up as no batch of usual text makes it. A loss
    that creeps up over dozens of steps takes its median along.

    `streak` is the number of bad steps in a row so far. The state is plain data. Of several ranks,
    which all judge alike, one `warns`.
    """

    def __init__(self, settings: Health, clip_norm: float, *, warns: bool = True) -> None:
        self._settings = settings
        self._clip_norm = clip_norm
        self._norms: deque[float] = deque(maxlen=_RECENT)
        self._losses: deque[float] = deque(maxlen=_RECENT)
        self._last: BadStep | None = None
        self._warns = warns
        self.streak = 0

    def judge(self, loss: float, gradient_norm: float) -> BadStep | None:
        """What is wrong with the step of these values, or None; either way it is remembered."""
        bad = self._problem(loss, gradient_norm)
        if bad is None:
            self.streak = 0
            self._norms.append(gradient_norm)
            self._losses.append(loss)
        else:
            self.streak += 1
        self._last = bad
        return bad

    @property
    def is_nonfinite(self) -> bool:
        """Whether the last step gave numbers that are none; the weights may be why."""
        return self._last is not None and self._last.kind == "nonfinite"

    def may_save(self, *, is_last: bool) -> bool:
        """Whether to save what there is now.

        A loss that is no number may come of the weights: a save waits for one that is, but at the
        last step none will come, and the update was skipped: there the weights alone decide.
        """
        return is_last or not self.is_nonfinite

    def note_empty(self) -> None:
        """Warn, once, of a step without one labelled token."""
        if self._warns:
            self._warns = False
            warnings.warn(
                "a step without one labelled token changes nothing; is the mask right?",
                stacklevel=3,
            )

    def check(self, step: int, *, is_last: bool = False) -> None:
        """Stop a run whose steps, up to `step`, are bad again and again.

        Two losses that are none at the end of a run are enough: no later step could clear it.

        Raises:
            TrainingError: naming what was seen and the ways out.
        """
        bad, allowed = self._last, self._settings.stop_after
        if bad is None:
            return
        if self.is_nonfinite and not self._settings.skip_nonfinite:
            allowed = 1
        elif self.is_nonfinite and is_last:
            allowed = min(allowed, 2)
        if self.streak < allowed:
            return
        many = f"the last {self.streak} steps were all bad: " if self.streak > 1 else ""
        raise _gone_wrong(f"{many}{bad.text} at step {step}", bad.kind)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to judge on exactly from here."""
        return {
            "norms": list(self._norms),
            "losses": list(self._losses),
            "streak": self.streak,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; an empty one is that of a new run."""
        self._norms = deque(map(float, state.get("norms", ())), maxlen=_RECENT)
        self._losses = deque(map(float, state.get("losses", ())), maxlen=_RECENT)
        self.streak = int(state.get("streak", 0))
        self._last = None

    def _problem(self, loss: float, gradient_norm: float) -> BadStep | None:
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            return BadStep("nonfinite", f"loss {loss:.4g}, gradient norm {gradient_norm:.4g}")
        if not self._settings.spike_factor:
            return None
        return self._gradient_spike(loss, gradient_norm) or self._loss_spike(loss, gradient_norm)

    def _gradient_spike(self, loss: float, gradient_norm: float) -> BadStep | None:
        if len(self._norms) < _WARM_UP:
            return None
        usual = median(self._norms)
        if gradient_norm <= max(self._settings.spike_factor * usual, self._clip_norm):
            return None
        times = f", {gradient_norm / usual:.0f} times the usual {usual:.4g}" if usual else ""
        return BadStep("spike", f"gradient norm {gradient_norm:.4g}{times}, loss {loss:.4g}")

    def _loss_spike(self, loss: float, gradient_norm: float) -> BadStep | None:
        # A checkpoint of an earlier version has norms alone.
        if len(self._losses) < _WARM_UP:
            return None
        usual = median(self._losses)
        spread = median(abs(one - usual) for one in self._losses)
        above = loss - usual
        if above <= max(self._settings.spike_factor * spread, _LEAP):
            return None
        more = f"{above:.4g} above the usual {usual:.4g}"
        return BadStep("spike", f"loss {loss:.4g}, {more}, gradient norm {gradient_norm:.4g}")


def check_finite_state(
    model: nn.Module, optimizers: Iterable[Optimizer], step: int, world: World = World()
) -> None:
    """Refuse to save what nobody could go on from, on any rank. One wait for the device.

    Raises:
        TrainingError: a weight, or a number of an optimizer's state, is not finite.
    """
    tensors = [own_part(one) for one in (*model.parameters(), *_tensors(optimizers))]
    [is_broken] = world.any(not all_finite(tensors))
    if is_broken:
        raise _gone_wrong(f"weights or optimizer hold infinities or NaN after step {step}")


@torch.no_grad()
def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every number of these is finite, in one wait for the device."""
    # A sum of finite numbers may overflow; the largest magnitude does not.
    largest = [t.detach().abs().amax() for t in tensors if t.is_floating_point() and t.numel()]
    if not largest:
        return True
    return bool(torch.stack([value.float() for value in largest]).isfinite().all())


def check_validation(loss: float, step: int) -> None:
    """A model whose validation loss is no number is not worth keeping.

    Raises:
        TrainingError: it is none.
    """
    if not math.isfinite(loss):
        raise _gone_wrong(f"the validation loss is {loss} after step {step}")


def _tensors(optimizers: Iterable[Optimizer]) -> Iterable[Tensor]:
    for optimizer in optimizers:
        for state in optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))


def _gone_wrong(what: str, kind: str = "nonfinite") -> TrainingError:
    spikes = ", or with health.spike_factor=0 if they are no fault" if kind == "spike" else ""
    return TrainingError(
        f"{what}; nothing of that was saved.",
        hint="What was saved before is whole. Go on from it in another folder (--init RUN), or "
        f"begin anew, with a lower optimizer.learning_rate{spikes}. metrics.jsonl names every "
        "bad step.",
    )

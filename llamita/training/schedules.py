"""Learning rate over a run, as a factor on the recipe's rate."""

from __future__ import annotations

import math

from llamita.training.recipe import Schedule


def learning_rate_factor(schedule: Schedule, step: int, steps: int) -> float:
    """The factor for `step` (0 to steps - 1) of a run of `steps`.

    `wsd` (warmup-stable-decay, arXiv:2404.06395) stays at 1 and falls by 1 - sqrt over the last
    `decay_fraction` (arXiv:2405.18392); `cosine` falls from the end of the warm-up on. Both end
    at `final_fraction`. The first step is never at zero.
    """
    warmup = round(schedule.warmup_fraction * steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if schedule.kind == "cosine":
        progress = (step - warmup) / max(1, steps - warmup)
        share = 0.5 * (1 + math.cos(math.pi * progress))
    else:
        decay = round(schedule.decay_fraction * steps)
        into_decay = step - (steps - decay)
        if into_decay < 0:
            return 1.0
        share = 1 - math.sqrt((into_decay + 1) / (decay + 1))
    return schedule.final_fraction + (1 - schedule.final_fraction) * share

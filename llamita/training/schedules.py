"""What happens when in a run: the learning rate, as a factor on the recipe's, and validation."""

from __future__ import annotations

import math

from llamita.training.settings.recipe import Schedule, Watch


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


def validation_steps(steps: int, watch: Watch) -> set[int]:
    """The steps after which a run is looked at: every so many, or the ends of equal parts."""
    if watch.validate_every is not None:
        return {*range(watch.validate_every, steps, watch.validate_every), steps}
    return {math.ceil(steps * part / watch.validations) for part in range(1, watch.validations + 1)}

"""`llamita plan --ranks N --device h100`: models on a cluster, on paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llamita.errors import ConfigError

if TYPE_CHECKING:
    from llamita.training.planning.cluster import ClusterPlan

# What is planned where no model is named, and the vocabularies of these families.
VOCABULARIES = {
    "smollm2-135m": 49152,
    "smollm2-360m": 49152,
    "tinyllama-1.1b": 32000,
    "llama-3.2-1b": 128256,
    "llama-3.2-3b": 128256,
    "llama-2-7b": 32000,
    "llama-3-8b": 128256,
}
USUAL_VOCABULARY = 32000
USUAL_CONTEXT = 2048


def cluster_models(
    ranks: int | None,
    device: str | None,
    text: Sequence[Path],
    preset_name: str | None,
    params: str | None,
) -> dict[str, ClusterPlan]:
    """What training takes on `ranks` GPUs: of the model that is named, or of known ones.

    Raises:
        ConfigError: one of the two is missing or cannot be, or there is TEXT.
    """
    from llamita.config import parse_size, preset, shape_for
    from llamita.training.planning.cluster import planned_cluster
    from llamita.training.planning.devices import DEVICES

    if ranks is None or device is None:
        missing = "--ranks" if ranks is None else "--device"
        raise ConfigError(
            f"a cluster is planned from --ranks and --device, and {missing} is missing.",
            hint=f"Such as --ranks 8 --device h100; devices are {', '.join(DEVICES)}.",
        )
    if text:
        raise ConfigError(
            f"{text[0]} is given beside --ranks: a cluster is planned on paper, without text.",
            hint="Leave TEXT out, or leave --ranks and --device out to measure this machine.",
        )
    if preset_name and params:
        raise ConfigError(
            f"--preset {preset_name} and --params {params} are both given; only one can hold."
        )
    if params:
        shapes = {params: shape_for(parse_size(params), USUAL_VOCABULARY, USUAL_CONTEXT)}
    else:
        names = [preset_name] if preset_name else list(VOCABULARIES)
        shapes = {name: preset(name, VOCABULARIES.get(name, USUAL_VOCABULARY)) for name in names}
    return {
        name: planned_cluster(config, ranks=ranks, device=device) for name, config in shapes.items()
    }


def print_cluster(plans: dict[str, ClusterPlan], as_json: bool) -> None:
    """Print a row for each."""
    if as_json:
        print(json.dumps({"models": {name: plan.as_dict() for name, plan in plans.items()}}))
        return
    first = next(iter(plans.values()))
    print(f"{first.ranks} × {first.device.title}, on paper; 20 tokens a parameter:")
    print(
        f"  {'model':<15} {'GB a GPU':>9} {'how':>11} {'tokens a step':>13} {'s a step':>8} "
        f"{'GB sent':>8} {'s waited':>8} {'tokens/s':>11} {'MFU':>5} {'days':>8}"
    )
    for name, plan in plans.items():
        way: str = plan.parallel if plan.ranks > 1 else "alone"
        way += "+ckpt" if plan.activation_checkpointing else ""
        memory = f"{plan.memory.on_device / 1e9:.1f}" + ("" if plan.fits else "!")
        print(
            f"  {name:<15} {memory:>9} {way:>11} {plan.tokens_per_step:>13,} "
            f"{plan.step_seconds:>8.2f} {plan.communication.total / 1e9:>8.1f} "
            f"{plan.exposed_seconds:>8.3f} {plan.tokens_per_second:>11,.0f} {plan.mfu:>5.0%} "
            f"{plan.days:>8,.1f}"
        )
    print("ckpt: layers are computed again in the backward pass; !: does not fit the GPU.")
    print("GB sent: by each GPU in a step; s waited: of that, what computing does not hide.")
    print(f"Assumed: {first.assumption}.")

"""A run on many GPUs, on paper: memory of a rank, seconds of a step, days.

    planned_cluster(preset("llama-3-8b", 128256), ranks=64, device="h100")

A step's products run at the device's `efficiency`, narrow ones at less of it; what lies between
them at the rate of its memory; a micro-batch takes no less than its kernels take to be launched.
Communication hides behind computing as far as it can: under fsdp a layer's parameters are gathered
while the one before computes, under ddp gradients are summed while the backward pass goes on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from llamita.config import ModelConfig
from llamita.errors import ConfigError
from llamita.training.machine.meter import muon_flops, training_flops
from llamita.training.memory.activations import Pass, kept_of_layer
from llamita.training.memory.rank_memory import (
    MemoryEstimate,
    Parallel,
    ParameterCounts,
    rank_memory,
)
from llamita.training.planning.communication import Communication, step_communication
from llamita.training.planning.devices import Device, device_named
from llamita.training.settings.learning_rates import best_batch, power_of_two

TOKENS_PER_PARAMETER = 20  # Chinchilla (arXiv:2203.15556)

_DAY = 86400.0
_NARROW = 192  # columns at which products reach half of what wide ones do
_PASSES = 4  # over what a layer keeps: written, read, its gradient written, and read
_OPTIMIZER_BYTES = {"adamw": 40, "muon": 32}  # a parameter: moments, weights, gradient, its norm
_LOSS_BYTES = 12  # a logit: written, read, its gradient written, and read twice
_LAUNCHES = 30  # kernels of a compiled layer, forward and backward
_LAUNCH_SECONDS = 4e-6


@dataclass(frozen=True)
class ClusterPlan:
    """What a run on many GPUs takes, as far as arithmetic tells.

    Attributes:
        rows, micro_batches: of a rank in a step; with `ranks` and `context_length` they make
            `tokens_per_step`.
        fits: whether `memory` is within the device's; where it is not, it is of the smallest
            setting there is.
        compute_seconds: of a step; `optimizer_seconds` are among them.
        communication_seconds: of a step, by itself; `exposed_seconds`: what computing does not
            hide.
        mfu: 6 N D and causal attention over the peak: what the run makes of the devices.
        tokens, days: 20 tokens a parameter, and how long they take.
    """

    device: Device
    ranks: int
    parallel: Parallel
    optimizer: str
    parameters: int
    context_length: int
    rows: int
    micro_batches: int
    activation_checkpointing: bool
    memory: MemoryEstimate
    fits: bool
    compute_seconds: float
    optimizer_seconds: float
    communication: Communication
    communication_seconds: float
    exposed_seconds: float
    mfu: float
    tokens: int

    @property
    def tokens_per_step(self) -> int:
        return self.ranks * self.rows * self.micro_batches * self.context_length

    @property
    def step_seconds(self) -> float:
        return self.compute_seconds + self.exposed_seconds

    @property
    def tokens_per_second(self) -> float:
        """Of all ranks together."""
        return self.tokens_per_step / self.step_seconds

    @property
    def days(self) -> float:
        return self.tokens / self.tokens_per_second / _DAY

    @property
    def assumption(self) -> str:
        """What the share of the peak rests on, in a sentence."""
        return (
            f"large products reach {self.device.efficiency:.0%} of {self.device.title}'s "
            f"{self.device.peak_flops / 1e12:,.0f} TFLOP/s (solved from torchtitan's published "
            "runs of Llama 3 8B), narrow ones less, and what lies between them waits for memory"
        )

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: numbers and names."""
        return {
            "device": self.device.name,
            "ranks": self.ranks,
            "parallel": self.parallel if self.ranks > 1 else None,
            "parameters": self.parameters,
            "optimizer": self.optimizer,
            "context_length": self.context_length,
            "rows": self.rows,
            "micro_batches": self.micro_batches,
            "tokens_per_step": self.tokens_per_step,
            "activation_checkpointing": self.activation_checkpointing,
            "fits": self.fits,
            "memory_gb": round(self.memory.on_device / 1e9, 2),
            "device_memory_gb": round(self.device.memory / 1e9, 1),
            "memory_parts_gb": {
                name: round(size / 1e9, 3) for name, size in self.memory.parts.items()
            },
            "host_ram_gb": round(self.memory.in_ram / 1e9, 2),
            "step_seconds": round(self.step_seconds, 4),
            "compute_seconds": round(self.compute_seconds, 4),
            "optimizer_seconds": round(self.optimizer_seconds, 4),
            "communication_seconds": round(self.communication_seconds, 4),
            "exposed_seconds": round(self.exposed_seconds, 4),
            "communication_gb": round(self.communication.total / 1e9, 3),
            "communication": asdict(self.communication),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "mfu": round(self.mfu, 4),
            "mfu_assumes": self.assumption,
            "tokens": self.tokens,
            "days": round(self.days, 3),
        }


def planned_cluster(
    config: ModelConfig,
    *,
    ranks: int,
    device: str,
    context_length: int | None = None,
    tokens_per_step: int | None = None,
    optimizer: str = "adamw",
    parallel: Parallel | None = None,
    activation_checkpointing: bool | None = None,
) -> ClusterPlan:
    """The quickest way to train `config` on `ranks` devices, in bfloat16, its layers compiled.

    Args:
        ranks: GPUs, in nodes of eight.
        device: one of `devices.DEVICES`.
        context_length: tokens of a row; left out, `max_position_embeddings`, at most 4096.
        tokens_per_step: of all ranks; left out, as Step Law has it for 20 tokens a parameter. Each
            rank takes the next whole number of rows.
        optimizer: "adamw" or "muon".
        parallel: left out, ddp where a whole replica fits, else fsdp.
        activation_checkpointing: left out, where it is quicker or nothing fits without.

    Raises:
        ConfigError: there is no such device, or a number cannot be.
    """
    chosen = device_named(device)
    time = min(config.max_position_embeddings, 4096) if context_length is None else context_length
    for name, value in (("ranks", ranks), ("context_length", time)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1.")
    tokens = TOKENS_PER_PARAMETER * config.count_parameters()
    wanted = tokens_per_step or usual_tokens_per_step(tokens)
    rows = max(1, round(wanted / (ranks * time)))
    ways: tuple[Parallel, ...] = ("ddp", "fsdp") if parallel is None else (parallel,)
    if ranks == 1:
        ways = ("ddp",)
    recomputes = (False, True) if activation_checkpointing is None else (activation_checkpointing,)
    for way in ways:
        plans = [
            _plan(config, chosen, ranks, way, optimizer, time, size, rows // size, recompute)
            for size in range(1, rows + 1)
            if rows % size == 0
            for recompute in recomputes
        ]
        fitting = [plan for plan in plans if plan.fits]
        if fitting:
            quickest = min(plan.step_seconds for plan in fitting)
            # Among equals the fewest micro-batches: what the formula leaves out speaks for them.
            alike = [plan for plan in fitting if plan.step_seconds <= 1.01 * quickest]
            return min(alike, key=lambda plan: plan.micro_batches)
    return min(plans, key=lambda plan: plan.memory.on_device)


def usual_tokens_per_step(tokens: float) -> int:
    """The batch that suits a run over `tokens`, by Step Law (arXiv:2503.04715): a power of two."""
    return power_of_two(best_batch(tokens))


def _plan(
    config: ModelConfig,
    device: Device,
    ranks: int,
    parallel: Parallel,
    optimizer: str,
    time: int,
    rows: int,
    micro_batches: int,
    recompute: bool,
) -> ClusterPlan:
    work = Pass(rows, time, "bfloat16", device="cuda", compiled=True, checkpointing=recompute)
    memory = rank_memory(
        config, work, optimizer, micro_batches=micro_batches, ranks=ranks, parallel=parallel
    )
    of_micro_batch = _pass_seconds(config, device, work)
    of_optimizer = _optimizer_seconds(config, device, optimizer, ranks, parallel)
    communication = step_communication(
        config,
        ranks=ranks,
        parallel=parallel,
        micro_batches=micro_batches,
        optimizer=optimizer,
        precision=work.precision,
    )
    alone = communication.seconds(device, ranks)
    computing = micro_batches * of_micro_batch
    exposed = _exposed_seconds(config, parallel, alone, computing, of_micro_batch)
    flops = training_flops(config, time) * micro_batches * work.tokens
    seconds = computing + of_optimizer + exposed
    return ClusterPlan(
        device=device,
        ranks=ranks,
        parallel=parallel,
        optimizer=optimizer,
        parameters=config.count_parameters(),
        context_length=time,
        rows=rows,
        micro_batches=micro_batches,
        activation_checkpointing=recompute,
        memory=memory,
        fits=memory.on_device <= device.memory,
        compute_seconds=computing + of_optimizer,
        optimizer_seconds=of_optimizer,
        communication=communication,
        communication_seconds=alone,
        exposed_seconds=exposed,
        mfu=flops / seconds / device.peak_flops,
        tokens=TOKENS_PER_PARAMETER * config.count_parameters(),
    )


def _pass_seconds(config: ModelConfig, device: Device, work: Pass) -> float:
    """Forward and backward pass of one micro-batch."""
    head = 6.0 * config.vocab_size * config.hidden_size
    flops = training_flops(config, work.time)
    if work.checkpointing:
        flops += (flops - head) / 3  # the layers' forward pass again
    layers = config.num_hidden_layers
    moved = (_PASSES + work.checkpointing) * layers * kept_of_layer(config, work)
    moved += work.tokens * config.vocab_size * _LOSS_BYTES
    computing = work.tokens * flops / _product_rate(config, device) + moved / device.bandwidth
    return max(computing, layers * _LAUNCHES * _LAUNCH_SECONDS)


def _optimizer_seconds(
    config: ModelConfig, device: Device, optimizer: str, ranks: int, parallel: Parallel
) -> float:
    """The update. Every rank orthogonalizes all of Muon's matrices, so that all get the same."""
    counts = ParameterCounts.of(config)
    shards = ranks if parallel == "fsdp" else 1
    seconds = counts.total * _OPTIMIZER_BYTES[optimizer] / shards / device.bandwidth
    if optimizer == "muon":
        seconds += newton_schulz_seconds(config, device)
    return seconds


def newton_schulz_seconds(config: ModelConfig, device: Device) -> float:
    """Seconds of Muon's iteration over all matrices of the layers."""
    return muon_flops(config) / _product_rate(config, device)


def _product_rate(config: ModelConfig, device: Device) -> float:
    """Operations a second of products as wide as the model."""
    width = config.hidden_size
    return device.peak_flops * device.efficiency * width / (width + _NARROW)


def _exposed_seconds(
    config: ModelConfig, parallel: Parallel, alone: float, computing: float, last: float
) -> float:
    """Seconds of communication that computing does not hide.

    Under fsdp the first layer's parameters and the last gradients are waited for; under ddp there
    is the backward pass of the last micro-batch to hide in, and its last bucket is waited for.
    """
    hidden = computing if parallel == "fsdp" else 2 / 3 * last
    return max(alone - hidden, alone / (config.num_hidden_layers + 1))

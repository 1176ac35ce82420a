"""Bytes that the ranks of a run send each other in a step, and how long that takes.

Collectives go around a ring: to gather or to scatter S bytes each of N ranks sends (N - 1) / N x S,
to sum them everywhere twice that (Patarasuk and Yuan, 2009).
"""

from __future__ import annotations

from dataclasses import dataclass

from llamita.config import ModelConfig
from llamita.training.memory.activations import FLOAT32, VALUE_BYTES
from llamita.training.memory.rank_memory import ParameterCounts
from llamita.training.planning.devices import Device

# Shares of the links' rates that large collectives reach, and seconds of each hop of a ring.
_REACHED = 0.8
_HOP_SECONDS = 4e-6


@dataclass(frozen=True)
class Communication:
    """Of one rank in one step: bytes sent (as many are received), by kind.

    Attributes:
        all_gather: whole parameters under fsdp, forward and backward; Muon's gradients there.
        reduce_scatter: gradients under fsdp.
        all_reduce: gradients under ddp.
        collectives: how many calls.
    """

    all_gather: int = 0
    reduce_scatter: int = 0
    all_reduce: int = 0
    collectives: int = 0

    @property
    def total(self) -> int:
        return self.all_gather + self.reduce_scatter + self.all_reduce

    def seconds(self, device: Device, ranks: int) -> float:
        """How long it takes by itself."""
        return self.total / bus_bandwidth(device, ranks) + (
            self.collectives * max(0, ranks - 1) * _HOP_SECONDS
        )


def bus_bandwidth(device: Device, ranks: int) -> float:
    """Bytes a second at which each rank of a ring sends.

    Within a node at the rate of its links. Between nodes as many rings run as there are network
    cards, each crossing once with its part: together they are as quick as all cards of a node.
    """
    if ranks <= device.per_node:
        return _REACHED * device.link
    return _REACHED * min(device.link, device.per_node * device.network)


def step_communication(
    config: ModelConfig,
    *,
    ranks: int,
    parallel: str,
    micro_batches: int,
    optimizer: str,
    precision: str,
) -> Communication:
    """What a rank sends in one step of `micro_batches`.

    fsdp gathers the layers twice, in the number format `precision`, and the tables once in each
    micro-batch, and scatters the sums of its gradients; Muon then gathers each matrix's gradient.
    ddp sums all gradients once, after the last micro-batch. But for the layers all is float32.
    """
    if ranks == 1:
        return Communication()
    counts = ParameterCounts.of(config)
    layers = config.num_hidden_layers

    def sent(values: int, of_bytes: int = FLOAT32) -> int:
        return of_bytes * values * (ranks - 1) // ranks

    if parallel == "ddp":
        # In buckets of 25 MB.
        buckets = -(-FLOAT32 * counts.total // 25_000_000)
        return Communication(all_reduce=2 * sent(counts.total), collectives=buckets)
    of_layers = counts.matrices + counts.vectors
    of_layers *= 2 * micro_batches
    gathered = micro_batches * counts.tables
    collectives = micro_batches * (3 * layers + 2)
    if optimizer == "muon":
        gathered += counts.matrices
        collectives += 7 * layers
    scattered = micro_batches * counts.total
    return Communication(
        all_gather=sent(of_layers, VALUE_BYTES[precision]) + sent(gathered),
        reduce_scatter=sent(scattered),
        collectives=collectives,
    )

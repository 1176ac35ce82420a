"""Accelerators to plan for, by name: what their makers say of them.

Peaks are of dense bfloat16 products summed in float32 (data sheets print twice that, for sparse
ones). Links are in one direction. A GPU has a network card of its own where nodes are built so.

Sources: NVIDIA's data sheets of A100 (2021), H100 and H200 (2024), DGX B200 (2024), L40S (2023),
and the Ada whitepaper for the RTX 4090.

`efficiency` is the share of the peak that large products reach within a training step. Those of
A100 and H100 are solved from torchtitan's published runs of Llama 3 8B under FSDP2 with 8,192
tokens of context (docs/performance.md: 2,973 tokens a second and GPU on 64 A100;
benchmarks/llama3_h100_202412_torchtitan.md: 6,667 on 8 H100 of 500 W), which compute every other
product again; a test holds the formula to them. The others are taken from their nearest relative.
"""

from __future__ import annotations

from dataclasses import dataclass

from llamita.errors import ConfigError


@dataclass(frozen=True)
class Device:
    """One GPU and how it is connected.

    Attributes:
        peak_flops: of bfloat16 products, a second.
        memory: bytes.
        bandwidth: bytes a second of its memory.
        link: bytes a second to the others of its node.
        network: bytes a second to other nodes, for each GPU.
        efficiency: share of the peak that large products reach.
    """

    name: str
    title: str
    peak_flops: float
    memory: int
    bandwidth: float
    link: float
    network: float
    efficiency: float
    per_node: int = 8


_HOPPER, _AMPERE, _ADA = 0.44, 0.62, 0.55

DEVICES = {
    device.name: device
    for device in (
        Device("a100", "A100 SXM 80 GB", 312e12, 80 * 10**9, 2.039e12, 300e9, 25e9, _AMPERE),
        Device("a100-40gb", "A100 SXM 40 GB", 312e12, 40 * 10**9, 1.555e12, 300e9, 25e9, _AMPERE),
        Device("h100", "H100 SXM 80 GB", 989.4e12, 80 * 10**9, 3.35e12, 450e9, 50e9, _HOPPER),
        Device("h200", "H200 SXM 141 GB", 989.4e12, 141 * 10**9, 4.8e12, 450e9, 50e9, _HOPPER),
        Device("b200", "B200 SXM 180 GB", 2250e12, 180 * 10**9, 8e12, 900e9, 50e9, _HOPPER),
        Device("l40s", "L40S 48 GB", 362e12, 48 * 10**9, 0.864e12, 32e9, 25e9, _ADA),
        Device("rtx4090", "RTX 4090 24 GB", 165.2e12, 24 * 10**9, 1.008e12, 32e9, 12.5e9, _ADA),
    )
}


def device_named(name: str) -> Device:
    """The device of that name.

    Raises:
        ConfigError: there is none.
    """
    device = DEVICES.get(name.strip().lower())
    if device is None:
        raise ConfigError(
            f"there is no device {name!r} to plan for.", hint=f"Known are: {', '.join(DEVICES)}."
        )
    return device

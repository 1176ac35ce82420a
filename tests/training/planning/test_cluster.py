"""Runs on many GPUs, on paper."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.config import preset
from llamita.errors import ConfigError
from llamita.training.memory.rank_memory import ParameterCounts
from llamita.training.planning.cluster import planned_cluster
from llamita.training.planning.communication import bus_bandwidth, step_communication
from llamita.training.planning.devices import DEVICES, device_named

EIGHT_B = preset("llama-3-8b", 128256, max_position_embeddings=8192)


@pytest.mark.parametrize(("device", "ranks", "rows", "published"), [
    ("a100", 64, 1, 2973),  # torchtitan docs/performance.md
    ("h100", 8, 2, 6667),  # torchtitan benchmarks/llama3_h100_202412_torchtitan.md
])  # fmt: skip
def test_published_runs_are_reproduced(
    device: str, ranks: int, rows: int, published: float
) -> None:
    """They computed every other product again, which lies between the two ways there are here."""
    seconds = [
        planned_cluster(
            EIGHT_B,
            ranks=ranks,
            device=device,
            tokens_per_step=8192 * rows * ranks,
            context_length=8192,
            parallel="fsdp",
            activation_checkpointing=checkpointing,
        )
        for checkpointing in (False, True)
    ]
    rate = 2 / sum(ranks / plan.tokens_per_second for plan in seconds)
    assert rate == pytest.approx(published, rel=0.05)


@given(
    st.integers(1, 512),
    st.sampled_from(["ddp", "fsdp"]),
    st.sampled_from(["adamw", "muon"]),
    st.sampled_from(["float32", "bfloat16"]),
)
def test_a_ring_sends_its_share(ranks: int, parallel: str, optimizer: str, precision: str) -> None:
    config = preset("smollm2-135m", 49152)
    sent = step_communication(
        config,
        ranks=ranks,
        parallel=parallel,
        micro_batches=3,
        optimizer=optimizer,
        precision=precision,
    )
    counts, share = ParameterCounts.of(config), 4 * (ranks - 1) / ranks
    if ranks == 1:
        assert sent.total == 0
    elif parallel == "ddp":
        assert sent.total == sent.all_reduce == pytest.approx(2 * counts.total * share, rel=1e-6)
    else:
        assert sent.reduce_scatter == pytest.approx(3 * counts.total * share, rel=1e-6)
        layers = counts.total - counts.tables
        gathered = 3 * (layers if precision == "bfloat16" else 2 * layers) + 3 * counts.tables
        gathered += counts.matrices if optimizer == "muon" else 0
        assert sent.all_gather == pytest.approx(gathered * share, rel=1e-6)


def test_between_nodes_the_network_is_the_bound() -> None:
    a100 = device_named("A100")
    assert bus_bandwidth(a100, 8) > bus_bandwidth(a100, 16)
    assert bus_bandwidth(a100, 16) == bus_bandwidth(a100, 64)


@pytest.mark.parametrize("ranks", [1, 3, 8, 64])
def test_a_plan_is_of_one_piece(ranks: int) -> None:
    config = preset("smollm2-360m", 49152)
    plan = planned_cluster(config, ranks=ranks, device="h100", context_length=2048)
    assert plan.fits
    assert plan.memory.on_device <= plan.device.memory
    assert plan.tokens_per_step == ranks * plan.rows * plan.micro_batches * 2048
    assert plan.tokens == 20 * config.count_parameters()
    assert plan.step_seconds >= plan.compute_seconds > plan.optimizer_seconds
    assert plan.communication_seconds >= plan.exposed_seconds
    assert 0.05 < plan.mfu < plan.device.efficiency
    assert plan.days * 86400 * plan.tokens_per_second == pytest.approx(plan.tokens)
    shown = plan.as_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert "torchtitan" in shown["mfu_assumes"]


def test_what_no_replica_holds_is_sharded() -> None:
    alone = planned_cluster(EIGHT_B, ranks=1, device="h100")
    assert not alone.fits
    assert alone.memory.on_device > 16 * EIGHT_B.count_parameters()
    many = planned_cluster(EIGHT_B, ranks=32, device="h100")
    assert many.fits
    assert many.parallel == "fsdp"
    assert not planned_cluster(EIGHT_B, ranks=32, device="h100", parallel="ddp").fits
    assert planned_cluster(preset("small", 8192), ranks=32, device="h100").parallel == "ddp"


def test_more_gpus_take_less_memory_each_under_fsdp() -> None:
    sizes = [
        planned_cluster(
            EIGHT_B, ranks=ranks, device="h200", parallel="fsdp", tokens_per_step=ranks * 8192
        ).memory.on_device
        for ranks in (4, 8, 16, 64)
    ]
    assert sizes == sorted(sizes, reverse=True)


def test_muon_costs_each_rank_the_same_whatever_their_number() -> None:
    plans = [
        planned_cluster(EIGHT_B, ranks=ranks, device="h100", optimizer=optimizer)
        for ranks in (16, 64)
        for optimizer in ("adamw", "muon")
    ]
    added = [muon.optimizer_seconds - adamw.optimizer_seconds
             for adamw, muon in zip(plans[::2], plans[1::2], strict=True)]  # fmt: skip
    assert added[0] > 1
    assert added[1] == pytest.approx(added[0], rel=0.02)


def test_an_unknown_device_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="'tpu'") as caught:
        planned_cluster(EIGHT_B, ranks=8, device="tpu")
    assert all(name in str(caught.value.hint) for name in DEVICES)


@pytest.mark.parametrize(("ranks", "context"), [(0, 1024), (2, 0)])
def test_numbers_that_cannot_be_are_refused(ranks: int, context: int) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        planned_cluster(EIGHT_B, ranks=ranks, device="h100", context_length=context)

"""How the ranks of a run share its work: its rows, and its weights.

A step is the same under any number of ranks: `batch.sequences` × `batch.accumulation` rows, each
read by one rank. Under `ddp` every rank has the whole model and gradients are exchanged; under
`fsdp` weights, gradients and optimizer state lie in shards (see `ranks.sharding`).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from llamita.config import ModelConfig
from llamita.data.loader import BlockLoader
from llamita.data.training_data import TrainingData
from llamita.errors import TrainingError
from llamita.model import Transformer
from llamita.training.memory.accounting import Split, estimate_memory, split_rows
from llamita.training.memory.room import Machine, gigabytes
from llamita.training.ranks.world import World
from llamita.training.records.observer import Observer
from llamita.training.settings.recipe import Batch, Recipe
from llamita.training.steps.step import LossSum


def share_rows(batch: Batch, world: World) -> Split:
    """What one rank reads of a step, in micro-batches of at most `batch.sequences` rows.

    Raises:
        TrainingError: the ranks cannot have equal parts.
    """
    rows = batch.sequences * batch.accumulation
    if rows % world.size:
        fitting = [ranks for ranks in range(1, rows + 1) if rows % ranks == 0]
        near = [max(ranks for ranks in fitting if ranks < world.size)]
        near += [ranks for ranks in fitting if ranks > world.size][:1]
        more = (rows // world.size + 1) * world.size
        raise TrainingError(
            f"a step has {batch.sequences} × {batch.accumulation} = {rows} rows (batch.sequences × "
            f"batch.accumulation), which {world.size} ranks cannot share equally.",
            hint=f"Start {' or '.join(map(str, near))} ranks, or begin a run with steps of {more} "
            "rows.",
        )
    return split_rows(batch.sequences, batch.accumulation, world.size)


def training_loader(data: TrainingData, recipe: Recipe, world: World) -> BlockLoader:
    """The rows of this rank, a micro-batch at a time, in the order of the whole run."""
    batch = recipe.batch
    return data.loader(
        batch.context_length,
        share_rows(batch, world).rows,
        recipe.seed,
        batch.packing,
        batch.document_mask,
        world.rank,
        world.size,
    )


def decide_parallel(
    recipe: Recipe,
    config: ModelConfig,
    observer: Observer,
    world: World,
    teacher: ModelConfig | None = None,
) -> Literal["ddp", "fsdp"]:
    """What `choose_parallel` says: `fsdp` where it says so on one rank, as machines may differ.

    The first rank tells it; for one rank nothing is said.

    Raises:
        TrainingError: the ranks cannot share a step.
    """
    if world.size == 1:
        return "ddp"
    share = share_rows(recipe.batch, world)
    choices = world.gather(choose_parallel(recipe, config, world, teacher=teacher))
    kinds = [kind for kind, _ in choices]
    rank = kinds.index("fsdp") if "fsdp" in kinds else 0
    kind, reason = choices[rank]
    if kind != kinds[0]:
        reason += f", says rank {rank}"
    rows = share.rows * share.micro_batches
    parts = f" in {share.micro_batches} parts" if share.micro_batches > 1 else ""
    observer.say(f"{world.size} ranks, {kind} ({reason}); each reads {rows} rows a step{parts}")
    return kind


def choose_parallel(
    recipe: Recipe,
    config: ModelConfig,
    world: World,
    machine: Machine | None = None,
    teacher: ModelConfig | None = None,
) -> tuple[Literal["ddp", "fsdp"], str]:
    """How several ranks share the weights, and the reason in words.

    Left open, it is `ddp`, which exchanges less, where every rank has the memory for all of the
    model.

    machine: what memory there is; None looks.
    teacher: the shape of the model that is learned from, which every rank has whole.

    Raises:
        TrainingError: lora is to be trained in shards.
    """
    wanted = recipe.machine.parallel
    if recipe.lora is not None:
        if wanted == "fsdp":
            raise TrainingError(
                "machine.parallel is fsdp, and lora trains whole copies of a model.",
                hint="Leave machine.parallel out, or train without lora.",
            )
        return "ddp", "adapters are small"
    if wanted != "auto":
        return wanted, "as asked"
    machine = machine or Machine.here(recipe.machine.device, world.local_size)
    memory = estimate_memory(recipe, config, ranks=world.size, parallel="ddp", teacher=teacher)
    needed = gigabytes(machine.needed(memory))
    if machine.fits(memory):
        return "ddp", f"whole models take {needed} here, which fits"
    return "fsdp", f"whole models would take {needed} here, which does not fit"


class ReplicatedLoss(nn.Module):
    """The loss of a rank's rows as a module, so that DistributedDataParallel can stand around it.

    `loss_sum` may be exchanged for another loss of the same model.
    """

    def __init__(self, model: Transformer, loss_sum: LossSum) -> None:
        super().__init__()
        self.model = model
        self.loss_sum = loss_sum

    def forward(
        self, input_ids: Tensor, labels: Tensor, document_ids: Tensor | None = None
    ) -> Tensor:
        """[B, T] each; document ids may be left out. The summed loss, a scalar."""
        return self.loss_sum(input_ids, labels, document_ids)


def replicated(loss: ReplicatedLoss, device: torch.device) -> DistributedDataParallel:
    """The loss whose backward pass leaves gradients that are means over the ranks.

    It begins by giving all ranks the weights of the first.
    """
    ids = [torch.cuda.current_device()] if device.type == "cuda" else None
    return DistributedDataParallel(loss, device_ids=ids, gradient_as_bucket_view=True)

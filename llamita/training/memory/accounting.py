"""What a training run takes, worked out before it starts: memory of each rank, and disk.

Pure arithmetic, without PyTorch. `rank_memory` has the sums, `planning.cluster` those of many GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from llamita.config import ModelConfig
from llamita.training.memory.activations import FLOAT32, Pass
from llamita.training.memory.rank_memory import (
    MemoryEstimate,
    Parallel,
    ParameterCounts,
    rank_memory,
)
from llamita.training.settings.recipe import Recipe

__all__ = [
    "DiskEstimate",
    "MemoryEstimate",
    "Parallel",
    "ParameterCounts",
    "estimate_disk",
    "estimate_memory",
    "split_rows",
]


@dataclass(frozen=True)
class DiskEstimate:
    """Bytes in the run's folder when it is fullest.

    Attributes:
        checkpoint: one, with its optimizer state.
        checkpoints: as many as are kept, and the one being written.
        models: `latest/`, `best/`, and the one being written; the same of `adapter/`.
    """

    checkpoint: int
    checkpoints: int
    models: int

    @property
    def total(self) -> int:
        return self.checkpoints + self.models


@dataclass(frozen=True)
class Split:
    """How a step's rows are shared out: `rows` a rank in each of `micro_batches`."""

    rows: int
    micro_batches: int


def split_rows(sequences: int, accumulation: int, ranks: int) -> Split:
    """The largest micro-batch of at most `sequences` rows that divides what a rank has.

    Where `ranks` does not divide the rows of a step, as if it had the next number of rows.
    """
    rows = math.ceil(sequences * accumulation / ranks)
    size = next(size for size in range(min(sequences, rows), 0, -1) if rows % size == 0)
    return Split(size, rows // size)


def estimate_memory(
    recipe: Recipe,
    config: ModelConfig,
    *,
    ranks: int = 1,
    parallel: Parallel = "ddp",
    teacher: ModelConfig | None = None,
    train_tokens: int = 0,
) -> MemoryEstimate:
    """Memory of one rank of a run.

    What the recipe leaves open counts as float32, not compiled, on a CPU.

    Args:
        ranks: processes of the run; with one, `parallel` has no meaning.
        teacher: the shape of the model that is learned from, if any.
        train_tokens: of the data, whose rows have an order in memory.
    """
    machine, batch = recipe.machine, recipe.batch
    device = "cpu" if machine.device == "auto" else machine.device
    split = split_rows(batch.sequences, batch.accumulation, ranks)
    fenced = batch.document_mask or batch.packing == "documents"
    window = config.sliding_window
    work = Pass(
        rows=split.rows,
        time=batch.context_length,
        precision="float32" if machine.precision == "auto" else machine.precision,
        device=device,
        compiled=machine.compile == "on",
        checkpointing=machine.activation_checkpointing,
        has_mask=fenced or (window is not None and window < batch.context_length),
    )
    estimate = rank_memory(
        config,
        work,
        recipe.optimizer.name,
        micro_batches=split.micro_batches,
        ranks=ranks,
        parallel=parallel,
        held_out=recipe.watch.validation_tokens,
        train_tokens=train_tokens,
        lora=recipe.lora,
    )
    if teacher is not None:
        estimate = _with_teacher(estimate, recipe, teacher, work)
    if recipe.length.minutes is not None:
        # The rank's weights, to go back to after measuring.
        shards = ranks if parallel == "fsdp" else 1
        weights = FLOAT32 * math.ceil(ParameterCounts.of(config, recipe.lora).total / shards)
        estimate = replace(estimate, snapshot=estimate.snapshot + weights)
    return estimate


def estimate_disk(recipe: Recipe, config: ModelConfig, steps: int | None = None) -> DiskEstimate:
    """Disk of a run's folder. `steps` is its length, where the recipe's is in minutes."""
    counts = ParameterCounts.of(config, recipe.lora)
    values = counts.total + counts.optimizer_values(recipe.optimizer.name)
    if config.tie_word_embeddings:
        values += counts.tables  # a checkpoint has the head beside the table it is
    kept = recipe.checkpoints.keep + 1
    every = recipe.checkpoints.keep_every
    length = steps or recipe.length.steps
    if length is None and recipe.length.tokens is not None:
        length = math.ceil(recipe.length.tokens / recipe.tokens_per_step)
    if every is not None and length is not None:
        kept += max(0, length // every - recipe.checkpoints.keep)
    checkpoint = FLOAT32 * values
    models = FLOAT32 * (3 * counts.model + 2 * counts.adapters)
    return DiskEstimate(checkpoint, kept * checkpoint, models)


def _with_teacher(
    estimate: MemoryEstimate, recipe: Recipe, teacher: ModelConfig, work: Pass
) -> MemoryEstimate:
    """Its weights, one layer of it at work, and its logits of a chunk."""
    settings = recipe.teacher
    size = 2 if settings is not None and settings.precision in ("bfloat16", "float16") else 4
    rows = min(work.tokens, max(128, (1 << 22) // teacher.vocab_size))
    layer = work.tokens * (4 * teacher.hidden_size + 3 * teacher.intermediate_size) * size
    return replace(
        estimate,
        parameters=estimate.parameters + size * teacher.count_parameters(),
        activations=estimate.activations + work.tokens * teacher.hidden_size * size,
        logits=estimate.logits + 4 * FLOAT32 * rows * teacher.vocab_size,
        working=max(estimate.working, layer),
    )

"""One optimizer step: the mean loss over all its labelled tokens, however they are split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from llamita.data.loader import Batch
from llamita.data.rows import IGNORED
from llamita.model import Transformer
from llamita.training.machine.precision import DTYPES, autocast
from llamita.training.ranks.world import World
from llamita.training.steps.cross_entropy import chunk_loss, head_loss_sum, rows_of_chunk
from llamita.training.steps.labelled import labelled_rows

Compile: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""`torch.compile`, or what leaves a function as it is."""


class LossSum(Protocol):
    """The summed cross-entropy of input ids and labels, in nats; each of its inputs is [B, T]."""

    def __call__(
        self, input_ids: Tensor, labels: Tensor, document_ids: Tensor | None = None
    ) -> Tensor: ...


@dataclass(frozen=True)
class StepResult:
    """`loss` is nats per labelled token; with none of them, zero and nothing to learn from."""

    loss: float
    tokens: int


def loss_sum_function(
    model: Transformer, precision: str, device: torch.device, compiled: Compile = lambda of: of
) -> LossSum:
    """A function of input ids and labels (both [B, T]) that sums their cross-entropy, in nats.

    With document ids, tokens see only their own document. compiled: makes the loss of a chunk of
    logits quick.
    """
    of_logits = compiled(chunk_loss)

    def of_chunk(logits: Tensor, labels: Tensor, _: slice) -> tuple[Tensor, Tensor]:
        loss, gradient = of_logits(logits, labels)
        return loss, gradient

    def loss_sum(input_ids: Tensor, labels: Tensor, document_ids: Tensor | None = None) -> Tensor:
        with autocast(precision, device):
            hidden = model.hidden_states(input_ids, document_ids=document_ids)
        head = model.lm_head.weight
        states, wanted = labelled_rows(hidden, labels, rows_of_chunk(head))
        return head_loss_sum(states, head, wanted, DTYPES[precision], of_chunk)

    return loss_sum


def accumulate_gradients(
    loss_sum: LossSum,
    batches: Sequence[Batch],
    device: torch.device,
    world: World = World(),
) -> StepResult:
    """Add the gradients of the mean loss over all labelled tokens of `batches`, of all ranks.

    One token count serves all: a mean of the batches' means, or of the ranks', would weigh a token
    of a nearly empty batch more. So every rank takes as many batches, labelled or not.

    loss_sum: with several ranks its backward passes leave means over them.
    """
    [tokens] = world.sum([_labelled(batches)])
    if tokens == 0:
        return StepResult(0.0, 0)
    losses = []
    for batch in batches:
        with _exchanging(loss_sum, batch is batches[-1]):
            loss = loss_sum(*on_device(batch, device))
            (loss * world.size / tokens).backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
    # Asked for once, at the end: a GPU is waited for each time.
    [total] = world.sum([sum(torch.stack(losses).tolist())])
    return StepResult(total / tokens, int(tokens))


def _exchanging(loss_sum: LossSum, is_last: bool) -> AbstractContextManager[None]:
    """Whole copies of a model exchange gradients once, after the last batch.

    Shards do it after each: to keep whole gradients is what they are for not to do.
    """
    if isinstance(loss_sum, DistributedDataParallel) and not is_last:
        waiting: AbstractContextManager[None] = loss_sum.no_sync()
        return waiting
    return nullcontext()


def mean_loss(
    loss_sum: LossSum, batches: Sequence[Batch], device: torch.device, world: World = World()
) -> float:
    """Mean loss over all labelled tokens of `batches`, of all ranks, in nats.

    Gradients are not turned off: that would compile a second graph, for longer than it saves.
    """
    total = 0.0
    for batch in batches:
        total += loss_sum(*on_device(batch, device)).item()
    total, tokens = world.sum([total, _labelled(batches)])
    return total / max(1, tokens)


def on_device(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """A batch as the arguments of a `LossSum`, on `device`."""
    documents = None if batch.document_ids is None else batch.document_ids.to(device)
    return batch.input_ids.to(device), batch.labels.to(device), documents


def _labelled(batches: Sequence[Batch]) -> int:
    return sum(int((batch.labels != IGNORED).sum()) for batch in batches)

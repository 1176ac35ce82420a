"""What a model makes of given tokens: the nats of each, in few passes and bounded memory.

Everything that scores text asks here: bits per byte, multiple choice, lm-eval's requests. Windows
of like length are read together. Windows that read the same tokens are one row of a pass: where
four answers differ in their last token alone, the question is read once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.errors import CheckpointError
from llamita.inference.modes import Evaluating
from llamita.model.transformer import Transformer

_BATCH_TOKENS = 8192  # tokens of one forward pass
_SORTED_TOKENS = 16 * _BATCH_TOKENS  # windows of so many tokens are sorted by length together
_LOGITS_BYTES = 64 * 2**20  # float32 logits held at a time


@dataclass(frozen=True)
class Window:
    """One reading: `inputs` are read, and `targets` follow them from place `first` on."""

    inputs: Sequence[int]
    first: int
    targets: Sequence[int]


W = TypeVar("W", bound=Window)
Measure: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"


def nats(logits: Tensor, targets: Tensor) -> Tensor:
    """-ln p [N] of each target [N], from float32 logits [N, V]."""
    return F.cross_entropy(logits, targets, reduction="none")


def nats_and_greedy(logits: Tensor, targets: Tensor) -> Tensor:
    """`nats` and, beside them, 1 where the target is the likeliest token: [N, 2]."""
    is_greedy = logits.argmax(-1) == targets
    return torch.stack([nats(logits, targets), is_greedy.float()], dim=-1)


def score_windows(
    model: Transformer, windows: Iterable[W], measure: Measure = nats
) -> Iterator[tuple[W, np.ndarray]]:
    """Each window with what `measure` says of its targets, as float64 [targets, …].

    Windows are taken some at a time and come in another order.

    Raises:
        CheckpointError: the model computes no numbers.
    """
    evaluating = Evaluating(model)
    for batch in _batches(windows):
        with evaluating:
            measured = _measure(model, batch, measure)
        if not np.isfinite(measured).all():
            raise CheckpointError(
                "the model's logits are not numbers (NaN): its weights or their precision are bad.",
                hint="Try dtype float32, or another checkpoint of the run.",
            )
        ends = itertools.accumulate(len(window.targets) for window in batch)
        for window, end in zip(batch, ends, strict=True):
            yield window, measured[end - len(window.targets) : end]


def _batches(windows: Iterable[W]) -> Iterator[list[W]]:
    """Windows of like length together, within the token budget of a pass."""
    waiting: list[W] = []
    tokens = 0
    for window in windows:
        waiting.append(window)
        tokens += len(window.inputs)
        if tokens >= _SORTED_TOKENS:
            yield from _batches_by_length(waiting)
            waiting, tokens = [], 0
    yield from _batches_by_length(waiting)


def _batches_by_length(windows: list[W]) -> Iterator[list[W]]:
    batch: list[W] = []
    rows = 0
    for window in sorted(windows, key=lambda window: (len(window.inputs), [*window.inputs])):
        is_new = not batch or window.inputs != batch[-1].inputs
        if batch and is_new and (rows + 1) * len(window.inputs) > _BATCH_TOKENS:
            yield batch
            batch, rows = [], 0
        batch.append(window)
        rows += is_new
    if batch:
        yield batch


@torch.no_grad()
def _measure(model: Transformer, batch: Sequence[Window], measure: Measure) -> np.ndarray:
    """Of all targets of a batch, one window after the other."""
    device = model.lm_head.weight.device
    rows = {tuple(window.inputs): 0 for window in batch}
    rows = {inputs: row for row, inputs in enumerate(rows)}
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for inputs, row in rows.items():
        ids[row, : len(inputs)] = torch.tensor(inputs)
    which_row = [rows[tuple(window.inputs)] for window in batch for _ in window.targets]
    which_place = [window.first + at for window in batch for at in range(len(window.targets))]
    targets = torch.tensor([target for window in batch for target in window.targets])
    # Padding stands after a row's end, where causal attention cannot see it.
    hidden = model.hidden_states(ids.to(device))[which_row, which_place]
    size = max(1, _LOGITS_BYTES // (4 * model.config.vocab_size))
    parts = [
        measure(model.lm_head(part).float(), target)
        for part, target in zip(
            torch.split(hidden, size), torch.split(targets.to(device), size), strict=True
        )
    ]
    return torch.cat(parts).cpu().double().numpy()

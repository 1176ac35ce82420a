"""Training batches: blocks of tokens in a seeded order, each one once an epoch.

The order is a function of the seed and the epoch alone, and the whole state is one integer, the
number of blocks drawn so far. So a resumed run draws exactly what the uninterrupted one would
have, whatever its batch size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from llamita.data.dataset import TokenDataset
from llamita.errors import DataError


@dataclass(frozen=True)
class Batch:
    """Rows of tokens to train on, int64 [B, T] each.

    `labels[b, t]` is the token after `input_ids[b, t]`, or -100 where nothing is to be learned.
    Where `document_ids` are given, tokens are to see only those of their own document.
    """

    input_ids: Tensor
    labels: Tensor
    document_ids: Tensor | None = None


class BlockLoader:
    """Draws blocks without replacement; block b is the tokens from b·T to b·T + T inclusive.

    Args:
        dataset: the split to draw from.
        context_length: T, the inputs of a block.
        batch_size: blocks of a batch.
        seed: of the order; not negative.

    `position` is the number of blocks drawn so far.

    Raises:
        DataError: the split is shorter than one block, or a number is out of its range.
    """

    def __init__(
        self,
        dataset: TokenDataset,
        context_length: int,
        batch_size: int,
        seed: int,
    ) -> None:
        for name, value, least in (("batch size", batch_size, 1), ("seed", seed, 0)):
            if value < least:
                raise DataError(f"the {name} is {value}; it must be at least {least}.")
        self.dataset = dataset
        self.context_length = context_length
        self.batch_size = batch_size
        self.seed = seed
        self.position = 0
        self.blocks_per_epoch = dataset.blocks(context_length)
        self._order_epoch = -1
        self._order: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def next_batch(self) -> Batch:
        """The next `batch_size` blocks; the order goes on over the end of an epoch."""
        blocks = [self._block_at(self.position + row) for row in range(self.batch_size)]
        self.position += self.batch_size
        return _batch(self.dataset, self.context_length, blocks)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on exactly here."""
        return {
            "position": self.position,
            "seed": self.seed,
            "context_length": self.context_length,
            "blocks_per_epoch": self.blocks_per_epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            DataError: it was saved with another seed, context length or amount of data, so that
                its position means other blocks.
        """
        for name in ("seed", "context_length", "blocks_per_epoch"):
            if state[name] != getattr(self, name):
                raise DataError(
                    f"the saved data position has {name} {state[name]}, but this run has "
                    f"{getattr(self, name)}: it would go on at other tokens.",
                    hint="Resume with the data and settings that the run began with.",
                )
        self.position = int(state["position"])

    def _block_at(self, position: int) -> int:
        epoch, index = divmod(position, self.blocks_per_epoch)
        if epoch != self._order_epoch:
            self._order = epoch_order(self.seed, epoch, self.blocks_per_epoch)
            self._order_epoch = epoch
        return int(self._order[index])


def epoch_order(seed: int, epoch: int, blocks: int) -> npt.NDArray[np.int64]:
    """A permutation of 0..blocks-1 [blocks].

    `RandomState` because its streams are frozen: a newer numpy must not change a resumed run.
    """
    generator = np.random.MT19937(np.random.SeedSequence([seed, epoch]))
    return np.random.RandomState(generator).permutation(blocks).astype(np.int64, copy=False)


def sequential_batches(
    dataset: TokenDataset, context_length: int, batch_size: int, limit: int | None = None
) -> Iterator[Batch]:
    """The same blocks at every call, for validation: `limit` of them spread evenly over the split
    (all of them for None), in order; the last batch may be smaller.

    Raises:
        DataError: the split is shorter than one block, or a number is out of its range.
    """
    if batch_size < 1 or (limit is not None and limit < 1):
        raise DataError(f"batch size {batch_size} and limit {limit} must be at least 1.")
    available = dataset.blocks(context_length)
    count = available if limit is None else min(limit, available)
    blocks = [index * available // count for index in range(count)]
    for start in range(0, count, batch_size):
        yield _batch(dataset, context_length, blocks[start : start + batch_size])


def _batch(dataset: TokenDataset, context_length: int, blocks: list[int]) -> Batch:
    rows = np.stack([dataset.read(b * context_length, context_length + 1) for b in blocks])
    if rows.max() >= dataset.vocab_size:
        row, column = np.argwhere(rows >= dataset.vocab_size)[0].tolist()
        shard = dataset.shard_of(blocks[row] * context_length + column)
        raise DataError(
            f"{shard.as_posix()} holds the token id {rows[row, column]:,} (in block "
            f"{blocks[row]:,}), but the vocabulary has {dataset.vocab_size:,}.",
            hint="The shard is damaged: copy it or prepare the data again.",
        )
    tokens_BT = torch.from_numpy(rows)
    return Batch(tokens_BT[:, :-1].contiguous(), tokens_BT[:, 1:].contiguous())

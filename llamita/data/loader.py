"""Training batches: rows in a seeded order, each one once an epoch of its source.

The order is a function of the seed and the epoch alone, and the whole state is how many rows of
each source were drawn so far. So a resumed run draws exactly what the uninterrupted one would have,
whatever its batch size. Where several processes train together, each draws the order of all and
reads its own rows of it: the state is the same in all of them, and of any number of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from llamita.data.mixing import Mixture
from llamita.data.rows import Rows
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
    """Draws rows of one or more sources, each without replacement.

    Args:
        sources: their rows, all of one context length.
        batch_size: rows of a batch.
        seed: of the order; not negative.
        weights: whole numbers, in the proportions of which the sources are drawn from; None takes
            the numbers of their rows, so that their epochs end together.
        rank, ranks: of each `ranks` × `batch_size` rows that are drawn, read the batch of number
            `rank`.

    Raises:
        DataError: a number is out of its range.
    """

    def __init__(
        self,
        sources: Sequence[Rows],
        batch_size: int,
        seed: int,
        weights: Sequence[int] | None = None,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        for name, value, least in (("batch size", batch_size, 1), ("seed", seed, 0)):
            if value < least:
                raise DataError(f"the {name} is {value}; it must be at least {least}.")
        self.sources = list(sources)
        self.batch_size = batch_size
        self.seed = seed
        self._ranks = ranks
        self._own = range(rank * batch_size, (rank + 1) * batch_size)
        self._mixture = Mixture(weights or [rows.count for rows in self.sources])
        self._orders: dict[int, tuple[int, npt.NDArray[np.int64]]] = {}

    def next_batch(self) -> Batch:
        """The next `batch_size` rows; the order goes on over the end of an epoch."""
        chosen = []
        for number in range(self.batch_size * self._ranks):
            source = self._mixture.draw()
            if number in self._own:
                chosen.append((source, self._row_at(source, self._mixture.drawn[source] - 1)))
        return _batch([(self.sources[source], row) for source, row in chosen])

    @property
    def notes(self) -> list[str]:
        """What a person should know about the rows: how much of them is padding."""
        packed = [rows for rows in self.sources if rows.packing == "documents"]
        return [
            f"{rows.dataset.directory.as_posix()}: documents packed into {rows.count:,} rows of "
            f"{rows.context_length:,}, {rows.padding:.1%} of them padding"
            for rows in packed
        ]

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on exactly here: plain data."""
        return {
            "drawn": list(self._mixture.drawn),
            "seed": self.seed,
            "context_length": self.sources[0].context_length,
            "packing": self.sources[0].packing,
            "rows": [rows.count for rows in self.sources],
            "weights": list(self._mixture.weights),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, also one of llamita before there were several sources.

        Raises:
            DataError: it was saved with another seed, context length or amount of data, so that
                its position means other rows.
        """
        if "position" in state:
            rows = [state["blocks_per_epoch"]]
            state = {
                **self.state_dict(),
                "drawn": [state["position"]],
                "seed": state["seed"],
                "weights": rows,
                "context_length": state["context_length"],
                "packing": "stream",
                "rows": rows,
            }
        for name, here in self.state_dict().items():
            if name != "drawn" and state[name] != here:
                raise DataError(
                    f"the saved data position has {name} {state[name]}, but this run has "
                    f"{here}: it would go on at other tokens.",
                    hint="Resume with the data and settings that the run began with.",
                )
        self._mixture.drawn = [int(count) for count in state["drawn"]]

    def _row_at(self, source: int, position: int) -> int:
        epoch, index = divmod(position, self.sources[source].count)
        known = self._orders.get(source)
        if known is None or known[0] != epoch:
            known = (epoch, epoch_order(self.seed, epoch, self.sources[source].count, source))
            self._orders[source] = known
        return int(known[1][index])


def epoch_order(seed: int, epoch: int, rows: int, source: int = 0) -> npt.NDArray[np.int64]:
    """A permutation of 0..rows-1 [rows].

    `RandomState` because its streams are frozen: a newer numpy must not change a resumed run.
    """
    entropy = [seed, epoch, source] if source else [seed, epoch]
    generator = np.random.MT19937(np.random.SeedSequence(entropy))
    return np.random.RandomState(generator).permutation(rows).astype(np.int64, copy=False)


def sequential_batches(rows: Rows, batch_size: int, limit: int | None = None) -> Iterator[Batch]:
    """The same rows at every call, for validation: `limit` of them spread evenly over the split
    (all of them for None), in order; the last batch may be smaller.

    Raises:
        DataError: a number is out of its range.
    """
    if batch_size < 1 or (limit is not None and limit < 1):
        raise DataError(f"batch size {batch_size} and limit {limit} must be at least 1.")
    count = rows.count if limit is None else min(limit, rows.count)
    chosen = [index * rows.count // count for index in range(count)]
    for start in range(0, count, batch_size):
        yield _batch([(rows, index) for index in chosen[start : start + batch_size]])


def _batch(chosen: Sequence[tuple[Rows, int]]) -> Batch:
    read = [rows.read(index) for rows, index in chosen]
    inputs, labels, documents = (
        torch.from_numpy(np.stack(column)) for column in zip(*read, strict=True)
    )
    return Batch(inputs, labels, documents if chosen[0][0].has_documents else None)

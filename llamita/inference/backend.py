"""What the engine needs of whatever computes logits: PyTorch now, the native CPU engine later.

A backend owns the weights and a key-value cache of `slots` rows with room for `capacity` positions
each. The engine decides which slot reads what; the backend reads it. Logits come as NumPy arrays in
the host's memory, so that nothing above this line depends on PyTorch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from llamita.config import ModelConfig

Logits: TypeAlias = "NDArray[np.float32]"


@dataclass(frozen=True)
class Segment:
    """Tokens that one slot reads in one pass.

    token_ids: at least one. start: the position of the first; the slot holds all before it.
    num_logits: logits are wanted after each of the last so many tokens. row_length: how many
    tokens the slot will hold once all that is now known has been read (a prompt's length for each
    of its chunks); only dynamic rotary scaling looks at it.
    """

    slot: int
    token_ids: Sequence[int]
    start: int
    num_logits: int
    row_length: int

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + len(self.token_ids)


class Backend(Protocol):
    """Reads tokens into cache slots and gives logits. Its calls come one at a time."""

    config: ModelConfig

    @property
    def slots(self) -> int:
        """How many rows the cache has."""

    @property
    def capacity(self) -> int:
        """How many positions each slot has room for; a rolling cache holds the last of them."""

    @property
    def max_segment(self) -> int:
        """The most tokens a segment may have (a rolling cache has room for no more at once)."""

    @property
    def weights_version(self) -> Hashable:
        """Another value once weights were changed or replaced: what slots hold is then stale."""

    def slot_bytes(self, capacity: int) -> int:
        """Memory that a slot with room for `capacity` positions takes, in bytes; above 0."""

    def resize(self, slots: int, capacity: int) -> None:
        """Give the cache this size: rows that lie below it in slot and position stay.

        A row that reaches past a smaller capacity is lost. Nothing changes where this raises
        MemoryError, or the RuntimeError of an allocator.
        """

    def prefill(self, segments: Sequence[Segment]) -> Logits:
        """Read several segments, of different slots, in one pass.

        Gives [N, V] float32, N the sum of their num_logits, in the order of the segments.
        """

    def decode(
        self, slots: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]
    ) -> Logits:
        """Read one token in each of several slots; gives [B, V] float32 logits after each."""

    def reusable(self, written: int, shared: int) -> int:
        """How many tokens a new row may take over from a slot.

        The slot has read `written` tokens, of which the first `shared` are also the row's. All or
        nothing in a rolling cache, and nothing where keys depend on the length of the row.
        """

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the first `length` positions of slot `target` those of slot `source`."""

"""Keys and values of what was read so far: one slot for each row of a batch."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from llamita.config import ModelConfig

_ALIGNMENT = 64  # bytes: of the widest vector registers, which NumPy does not heed
_LONGEST_SEGMENT = 256  # tokens that a rolling cache takes at once, beyond its window


class KVCache:
    """Static storage for `slots` rows of up to `capacity` tokens.

    The token at position `p` lies at place `p % size` of its slot. `size` is the capacity, except
    under a sliding window: there the cache rolls, and its size is what the window and one segment
    need, however long the text. A query sees no place that holds a later position than its own, so
    rows of different lengths need no padding, and what a row wrote in vain (a rejected draft, the
    slot's former row) is overwritten before anything can see it.

    `held` is [layers, 2, slots, K, size, D], keys before values. It begins as zeros, never as what
    lay in memory: a masked place counts with weight 0, and 0 × NaN is NaN. On the CPU the system
    hands the zeros out as they are touched, so that room for a long context costs nothing until
    used.
    """

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self._layers = config.num_hidden_layers
        self._heads = config.num_key_value_heads
        self._head_dim = config.head_dim
        self._ring = config.sliding_window and config.sliding_window + _LONGEST_SEGMENT
        self._filled: list[int] = []
        self.window = config.sliding_window
        self.dtype = dtype
        self.device = torch.device(device)
        self.capacity = 0
        self.held = self._zeros(0, 0)

    @property
    def is_on_gpu(self) -> bool:
        """Whether asking for a number of a tensor makes the caller wait."""
        return self.device.type != "cpu"

    @property
    def slots(self) -> int:
        """How many rows there is room for."""
        return len(self._filled)

    @property
    def size(self) -> int:
        """How many places a slot has."""
        return self.held.shape[4]

    @property
    def longest_segment(self) -> int | None:
        """The most tokens of one row that can be read in one pass; None means any number."""
        return self._ring and _LONGEST_SEGMENT

    def slot_bytes(self, capacity: int) -> int:
        """Memory of one slot with room for `capacity` positions."""
        places = capacity if self._ring is None else min(capacity, self._ring)
        return 2 * self._layers * self._heads * self._head_dim * places * self.dtype.itemsize

    def resize(self, slots: int, capacity: int) -> None:
        """Take this size. What the slots that stay hold in the positions that stay is kept.

        A row that is longer than the new capacity may lose all in a rolling cache. Without memory
        for the new size, the cache is left as it was.
        """
        size = capacity if self._ring is None else min(capacity, self._ring)
        filled = [min(places, size) for places in self._filled[:slots]]
        if (slots, size) != (self.slots, self.size):
            new = self._zeros(slots, size)
            # Only what is held is copied: places nobody wrote shall go on costing no memory. A ring
            # that has rolled has its final size, so places stay what they are.
            for slot, places in enumerate(filled):
                new[:, :, slot, :, :places] = self.held[:, :, slot, :, :places]
            self.held = new
        self._filled = filled + [0] * (slots - len(filled))
        self.capacity = capacity

    def fill(self, slot: int, end: int) -> None:
        """Take note that `slot` is about to hold the positions before `end`."""
        if end > self.capacity:
            raise ValueError(f"position {end - 1} is past the cache's capacity of {self.capacity}")
        self._filled[slot] = max(self._filled[slot], min(end, self.size))

    def places(self, slots: Tensor, positions: Tensor) -> Tensor:
        """Where `write` is to put the tokens at `positions` [N] of `slots` [N]: [N × 2 × K]."""
        halves = torch.arange(2, device=self.device)[:, None] * self.slots
        heads = torch.arange(self._heads, device=self.device)
        rows = (halves + slots[:, None, None]) * self._heads + heads
        return (rows * self.size + positions[:, None, None] % self.size).flatten()

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the first `length` positions of slot `target` those of slot `source`."""
        places = min(length, self.size)
        self.held[:, :, target, :, :places] = self.held[:, :, source, :, :places]
        self.fill(target, length)

    def reusable(self, written: int, shared: int) -> int:
        """How many of the `shared` first tokens of the `written` in a slot can serve a new row.

        All, unless a rolling cache has overwritten some that the row's next token would see.
        """
        if self.window is None or written <= self.size:
            return shared
        return shared if shared - self.window >= written - self.size else 0

    def positions_held(self, ends: Tensor, places: int) -> Tensor:
        """The position at each of the first `places`, in slots holding the ones before `ends`.

        [N] -> [N, places]; negative where the slot has not written there yet.
        """
        last = ends[:, None] - 1
        return last - (last - torch.arange(places, device=ends.device)) % self.size

    def _zeros(self, slots: int, size: int) -> Tensor:
        shape = (self._layers, 2, slots, self._heads, size, self._head_dim)
        if self.device.type != "cpu":
            return torch.zeros(shape, dtype=self.dtype, device=self.device)
        count, width = math.prod(shape), self.dtype.itemsize
        lazy = np.zeros(count + _ALIGNMENT // width, dtype=f"i{width}")  # NumPy has no bfloat16
        begin = -lazy.ctypes.data % _ALIGNMENT // width
        return torch.from_numpy(lazy[begin : begin + count]).view(self.dtype).view(shape)


def write(held: Tensor, places: Tensor, keys_values: Tensor) -> None:
    """Store keys and values [N, K + K, D] in one layer's cache, at what `KVCache.places` gave.

    held: [2, slots, K, size, D].
    """
    width = held.shape[-1]
    held.view(-1, width)[places] = keys_values.reshape(-1, width).to(held.dtype)

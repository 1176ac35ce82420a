"""Keys and values of what was read so far: one slot for each row of a batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from llamita.config import ModelConfig

_LONGEST_SEGMENT = 256  # tokens that a rolling cache takes at once, beyond its window


class KVCache:
    """Static storage for `slots` rows of up to `capacity` tokens.

    The token at position `p` lies at place `p % size` of its slot. `size` is the capacity, except
    under a sliding window: there the cache rolls, and its size is what the window and one segment
    need, however long the text. A query sees no place that holds a later position than its own, so
    rows of different lengths need no padding, and what a row wrote in vain (a rejected draft, the
    slot's former row) is overwritten before anything can see it.

    `keys` and `values` are [layers, slots, K, size, D]. They begin as zeros, never as whatever lay
    in memory: a masked place counts with weight 0, and 0 × NaN is NaN. On the CPU the system hands
    the zeros out as they are touched, so that room for a long context costs nothing until used.
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
        self.keys = self._zeros(0, 0)
        self.values = self._zeros(0, 0)

    @property
    def slots(self) -> int:
        """How many rows there is room for."""
        return len(self._filled)

    @property
    def size(self) -> int:
        """How many places a slot has."""
        return self.keys.shape[3]

    @property
    def longest_segment(self) -> int | None:
        """The most tokens of one row that can be read in one pass; None means any number."""
        return self._ring and _LONGEST_SEGMENT

    def slot_bytes(self, capacity: int) -> int:
        """Memory of one slot with room for `capacity` positions."""
        places = capacity if self._ring is None else min(capacity, self._ring)
        return 2 * self._layers * self._heads * self._head_dim * places * self.dtype.itemsize

    def resize(self, slots: int, capacity: int) -> None:
        """Take this size. What the slots that stay hold stays, unless `capacity` shrinks."""
        if capacity < self.capacity:
            self._filled = [0] * self.slots
        del self._filled[slots:]
        size = capacity if self._ring is None else min(capacity, self._ring)
        old = (self.keys, self.values)
        if (slots, size) != (self.keys.shape[1], self.size):
            self.keys, self.values = self._zeros(slots, size), self._zeros(slots, size)
            # Only what is held is copied: places nobody wrote shall go on costing no memory. A ring
            # that has rolled has its final size, so places stay what they are.
            for slot, filled in enumerate(self._filled):
                self.keys[:, slot, :, :filled] = old[0][:, slot, :, :filled]
                self.values[:, slot, :, :filled] = old[1][:, slot, :, :filled]
        self._filled += [0] * (slots - self.slots)
        self.capacity = capacity

    def fill(self, slot: int, end: int) -> None:
        """Take note that `slot` is about to hold the positions before `end`."""
        if end > self.capacity:
            raise ValueError(f"position {end - 1} is past the cache's capacity of {self.capacity}")
        self._filled[slot] = max(self._filled[slot], min(end, self.size))

    def layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer: two [slots, K, size, D]."""
        return self.keys[layer], self.values[layer]

    def places(self, slots: Tensor, positions: Tensor) -> Tensor:
        """Where `write` puts the tokens at `positions` [N] of `slots` [N]: [N × K]."""
        heads = slots[:, None] * self._heads + torch.arange(self._heads, device=self.device)
        return (heads * self.size + positions[:, None] % self.size).flatten()

    def write(self, layer: int, places: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [N, K, D] of one layer at what `places` gave."""
        for held, new in ((self.keys, keys), (self.values, values)):
            rows = held[layer].view(-1, self._head_dim)
            rows.index_copy_(0, places, new.reshape(-1, self._head_dim).to(self.dtype))

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the first `length` positions of slot `target` those of slot `source`."""
        places = min(length, self.size)
        for held in (self.keys, self.values):
            held[:, target, :, :places] = held[:, source, :, :places]
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
        shape = (self._layers, slots, self._heads, size, self._head_dim)
        if self.device.type != "cpu":
            return torch.zeros(shape, dtype=self.dtype, device=self.device)
        lazy = np.zeros(shape, dtype=f"i{self.dtype.itemsize}")  # NumPy has no bfloat16
        return torch.from_numpy(lazy).view(self.dtype)

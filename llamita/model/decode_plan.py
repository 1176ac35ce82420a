"""Attention of one token in each of many slots of a key-value cache."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.model.cached_attention import (
    Tables,
    by_shared_keys,
    causal_mask,
    in_blocks,
    places_read,
    turn_and_write,
)
from llamita.model.kv_cache import KVCache
from llamita.model.rope import RotaryEmbedding, rotate

# How many places of a slot could be read in the time that one more call takes.
_PLACES_PER_CALL = 128
_PLACES_PER_CALL_ON_GPU = 8192

# What one read looks at grows by so many places, so that not every step has a shape of its own.
_PLACES_OF_ONE_READ = 64


class OneRead(NamedTuple):
    """A step over B neighbouring slots as tensors alone, so that a whole layer is one graph.

    cos, sin: [B, 1, D] as `turn_` takes them. written: where keys and values go, as
    `KVCache.places` gives it. mask: [B, 1, 1, S], 0 or minus infinity, over the places to read.
    """

    cos: Tensor
    sin: Tensor
    written: Tensor
    mask: Tensor
    first_slot: int

    def attend(self, held: Tensor, qkv: Tensor) -> Tensor:
        """As `CachePlan.attend`, of the layer whose cache is `held` [2, slots, K, size, D]."""
        q = turn_and_write(held, qkv, self.written, (self.cos, self.sin), turns_keys=True)
        rows, places = self.mask.shape[0], self.mask.shape[3]
        keys, values = held[:, self.first_slot : self.first_slot + rows, :, :places].to(q.dtype)
        q = by_shared_keys(q, keys)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=self.mask).flatten(1)


class DecodePlan:
    """One token in each of B slots, which must ascend.

    Slots are read where they lie, neighbours of like length in one call.
    """

    def __init__(
        self, cache: KVCache, rope: RotaryEmbedding, slots: Sequence[int], positions: Sequence[int]
    ) -> None:
        for slot, position in zip(slots, positions, strict=True):
            cache.fill(slot, position + 1)
        at = torch.tensor(positions, device=cache.device)
        self._cache = cache
        self._written = cache.places(torch.tensor(slots, device=cache.device), at)
        self._at = at
        self._tables = rope.reading_tables(at, at + 1)
        self._turns_keys = not rope.is_dynamic
        self._slots, self._positions = slots, positions
        call = _PLACES_PER_CALL_ON_GPU if cache.is_on_gpu else _PLACES_PER_CALL
        self._groups = [
            _Group(cache, rope, slots[rows], positions[rows], rows)
            for rows in _groups(slots, positions, call)
        ]

    def attend(self, layer: int, qkv: Tensor) -> Tensor:
        """As `CachePlan.attend`."""
        held = self.held(layer)
        q = turn_and_write(held, qkv, self._written, self._tables, self._turns_keys)
        keys, values = held
        q = by_shared_keys(q, keys)
        outputs = [group.attend(q, keys, values) for group in self._groups]
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).flatten(1)

    def held(self, layer: int) -> Tensor:
        """As `CachePlan.held`."""
        return self._cache.held[layer]

    def in_one_read(self, dtype: torch.dtype) -> OneRead | None:
        """The step as tensors alone, for queries of `dtype`; None where it cannot be one read."""
        slots = self._slots
        if not self._turns_keys or len(self._groups) > 1 or slots[-1] - slots[0] >= len(slots):
            return None
        longest = in_blocks(max(self._positions) + 1, _PLACES_OF_ONE_READ)
        held = self._cache.positions_held(self._at + 1, min(longest, self._cache.size))
        mask = causal_mask(held[:, None], self._at[:, None], self._cache.window).to(dtype)
        torch._dynamo.maybe_mark_dynamic(mask, 3)  # or the first two lengths are compiled for
        return OneRead(*self._tables, self._written, mask, slots[0])


def _groups(slots: Sequence[int], positions: Sequence[int], call: int) -> Iterator[slice]:
    """Which rows are read in one call: as many as cost less so than in calls of their own.

    A call reads all slots from its first to its last, also free ones, as far as the longest goes;
    beginning another costs as much as reading `call` places.
    """
    begin, longest = 0, positions[0]
    for row in range(1, len(slots)):
        together = max(longest, positions[row])
        apart = (slots[row - 1] - slots[begin] + 1) * longest + call + positions[row]
        if (slots[row] - slots[begin] + 1) * together > apart:
            yield slice(begin, row)
            begin, together = row, positions[row]
        longest = together
    yield slice(begin, len(slots))


class _Group:
    """Rows of a step whose slots are read in one call."""

    def __init__(
        self,
        cache: KVCache,
        rope: RotaryEmbedding,
        slots: Sequence[int],
        positions: Sequence[int],
        rows: slice,
    ) -> None:
        self._rows: slice | Tensor = rows
        self._kept: Tensor | None = None
        self._slots = slice(slots[0], slots[-1] + 1)
        if len(slots) < slots[-1] + 1 - slots[0]:
            # For a free slot the row before it asks once more, and the answer is dropped.
            asking = [bisect_right(slots, slot) - 1 for slot in range(slots[0], slots[-1] + 1)]
            self._rows = torch.tensor(asking, device=cache.device) + rows.start
            self._kept = torch.tensor([slot - slots[0] for slot in slots], device=cache.device)
            positions = [positions[row] for row in asking]
        self._places = places_read(max(positions) + 1, cache)
        self._mask: Tensor | None = None
        self._key_tables: Tables | None = None
        sees_all = min(positions) + 1 == self._places <= (cache.window or self._places)
        if sees_all and not rope.is_dynamic:
            return
        at = torch.tensor(positions, device=cache.device)
        held = cache.positions_held(at + 1, self._places)
        if not sees_all:
            self._mask = causal_mask(held[:, None], at[:, None], cache.window)
        if rope.is_dynamic:
            self._key_tables = rope.tables(held.clamp(min=0), at + 1)

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The step's queries [B, K, H / K, D] against one layer's cache: those of these rows."""
        q = q[self._rows]
        keys = keys[self._slots, :, : self._places].to(q.dtype)
        values = values[self._slots, :, : self._places].to(q.dtype)
        if self._key_tables is not None:
            keys = rotate(keys, *self._key_tables)
        if self._mask is not None:
            self._mask = self._mask.to(q.dtype)  # in the first layer, for all
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=self._mask)
        return y if self._kept is None else y[self._kept]

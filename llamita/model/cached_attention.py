"""Attention over the slots of a key-value cache: one token in each of many, or stretches of a few.

Both plans write the new keys and values first and then read the cache, also for what was just
written. So a cache in lower precision gives the same, however a text is cut into passes. What a
plan needs to decide, it decides from Python's integers: asking a GPU would make it wait.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.model.kv_cache import KVCache
from llamita.model.precision import wants_float32
from llamita.model.rope import RotaryEmbedding, rotate, turn_

Tables = tuple[Tensor, Tensor]

# Queries read at a time on a CPU. A block of them looks at no key after its last, so that little of
# what is masked is computed: a quarter faster at 512 tokens than one call that knows it is causal.
_QUERIES = 128

# How many places of a slot could be read in the time that one more call takes.
_PLACES_PER_CALL = 128
_PLACES_PER_CALL_ON_GPU = 8192

# On a GPU, as many places are read as fill whole blocks of these, so that shapes repeat.
_PLACES_ON_GPU = 256


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
        self._tables = rope.reading_tables(at, at + 1)
        self._turns_keys = not rope.is_dynamic
        call = _PLACES_PER_CALL_ON_GPU if _is_on_gpu(cache) else _PLACES_PER_CALL
        self._groups = [
            _Group(cache, rope, slots[rows], positions[rows], rows)
            for rows in _groups(slots, positions, call)
        ]

    def attend(self, layer: int, qkv: Tensor) -> Tensor:
        """As `CachePlan.attend`."""
        q = _write(self._cache, layer, qkv, self._written, self._tables, self._turns_keys)
        keys, values = self._cache.layer(layer)
        # Query heads that share keys are the rows of one product: [B, K, H / K, D].
        q = q.reshape(q.shape[0], keys.shape[1], -1, q.shape[2])
        outputs = [group.attend(q, keys, values) for group in self._groups]
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).flatten(1)


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
        self._places = _places_read(max(positions) + 1, cache)
        self._mask: Tensor | None = None
        self._key_tables: Tables | None = None
        sees_all = min(positions) + 1 == self._places <= (cache.window or self._places)
        if sees_all and not rope.is_dynamic:
            return
        at = torch.tensor(positions, device=cache.device)
        held = cache.positions_held(at + 1, self._places)
        if not sees_all:
            self._mask = _mask(held[:, None], at[:, None], cache.window)
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


@dataclass(frozen=True)
class Stretch:
    """Tokens of one slot in a pass: its positions `start` to `start + length - 1`.

    row_length: how many tokens the slot will hold; only dynamic rotary scaling looks at it.
    """

    slot: int
    start: int
    length: int
    row_length: int


class PrefillPlan:
    """Stretches of several slots, one after the other: N tokens in all."""

    def __init__(self, cache: KVCache, rope: RotaryEmbedding, stretches: Sequence[Stretch]) -> None:
        self._cache = cache
        self._parts = []
        begin = 0
        for stretch in stretches:
            self._parts.append(_Part(cache, rope, stretch, begin))
            begin += stretch.length
        cosines, sines = zip(*(part.tables for part in self._parts), strict=True)
        self._tables = torch.cat(cosines), torch.cat(sines)
        self._written = torch.cat([part.written for part in self._parts])
        self._turns_keys = not rope.is_dynamic

    def attend(self, layer: int, qkv: Tensor) -> Tensor:
        """As `CachePlan.attend`."""
        q = _write(self._cache, layer, qkv, self._written, self._tables, self._turns_keys)
        keys, values = self._cache.layer(layer)
        outputs = [y for part in self._parts for y in part.attend(q, keys, values)]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


class _Part:
    """One stretch: where it lies in the pass and in the cache, and what it sees."""

    def __init__(self, cache: KVCache, rope: RotaryEmbedding, stretch: Stretch, begin: int) -> None:
        end = stretch.start + stretch.length
        limit = cache.longest_segment
        if limit is not None and stretch.length > limit:
            raise ValueError(f"{stretch.length} tokens at once; a rolling cache takes {limit}")
        cache.fill(stretch.slot, end)
        at = torch.arange(stretch.start, end, device=cache.device)
        lengths = torch.tensor([max(stretch.row_length, end)], device=cache.device)
        self.tables = rope.reading_tables(at, lengths.expand(len(at)))
        self.written = cache.places(torch.full_like(at, stretch.slot), at)
        self._slot = stretch.slot
        self._length = stretch.length
        self._places = end if stretch.start == 0 else _places_read(end, cache)
        self._places = min(self._places, cache.size)
        held = cache.positions_held(at[-1:] + 1, self._places)
        self._key_tables = rope.tables(held.clamp(min=0), lengths) if rope.is_dynamic else None
        self._blocks: list[_Block] = []
        size = stretch.length if _is_on_gpu(cache) else _QUERIES
        for first in range(0, stretch.length, size):
            queries = at[first : first + size]
            places = self._places
            if end <= cache.size and not _is_on_gpu(cache):
                places = stretch.start + first + len(queries)
            sees_all = places <= (cache.window or places)  # but what is yet to come
            is_causal = sees_all and places == len(queries)
            mask = None
            if not is_causal and not (sees_all and places == end and stretch.length == 1):
                mask = _mask(held[None, :, :places], queries[None], cache.window)
            rows = slice(begin + first, begin + first + len(queries))
            self._blocks.append(_Block(rows, places, mask, is_causal))

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> list[Tensor]:
        """The pass's queries q [N, H, D] against one layer's cache: [T, H × D] for each block."""
        dtype = q.dtype
        if wants_float32(q, self._length):
            q = q.float()
        keys, values = self._read(keys, q.dtype), self._read(values, q.dtype)
        if self._key_tables is not None:
            keys = rotate(keys, *self._key_tables)
        return [block.attend(q, keys, values).to(dtype) for block in self._blocks]

    def _read(self, held: Tensor, dtype: torch.dtype) -> Tensor:
        return held[self._slot, None, :, : self._places].to(dtype)


@dataclass
class _Block:
    """Queries of one stretch, `rows` of the pass, that are read in one call.

    places: how many of the slot they look at. mask: [1, 1, T, places], to be added.
    """

    rows: slice
    places: int
    mask: Tensor | None
    is_causal: bool

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The pass's queries [N, H, D] over keys and values [1, K, S, D]: [T, H × D]."""
        if self.mask is not None:
            self.mask = self.mask.to(q.dtype)  # in the first layer, for all
        y = F.scaled_dot_product_attention(
            q[self.rows].transpose(0, 1)[None],
            keys[:, :, : self.places],
            values[:, :, : self.places],
            attn_mask=self.mask,
            is_causal=self.is_causal,
            enable_gqa=q.shape[1] != keys.shape[1],
        )
        return y[0].transpose(0, 1).flatten(1)


def _write(
    cache: KVCache, layer: int, qkv: Tensor, places: Tensor, tables: Tables, turns_keys: bool
) -> Tensor:
    """Turn the queries, and the keys if asked; write keys and values; give the queries [N, H, D].

    Keys stay as they are where the angle of a position changes with the length of its row.
    """
    kv_heads = cache.held.shape[3]
    heads = qkv.shape[1] - 2 * kv_heads
    turn_(qkv[:, : heads + kv_heads] if turns_keys else qkv[:, :heads], *tables)
    cache.write(layer, places, qkv[:, heads:])
    return qkv[:, :heads]


def _places_read(end: int, cache: KVCache) -> int:
    """How many places of a slot that holds the positions before `end` one call reads."""
    if _is_on_gpu(cache):
        end = -(-end // _PLACES_ON_GPU) * _PLACES_ON_GPU
    return min(end, cache.size)


def _is_on_gpu(cache: KVCache) -> bool:
    return cache.device.type != "cpu"


def _mask(held: Tensor, queries: Tensor, window: int | None) -> Tensor:
    """Which positions held [B, 1, S] the queries at positions [B, T] see.

    [B, 1, T, S], 0 or minus infinity, to be added.
    """
    seen = (held >= 0) & (held <= queries[..., None])
    if window is not None:
        seen &= held > queries[..., None] - window
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -math.inf)[:, None]

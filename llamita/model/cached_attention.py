"""Attention over the slots of a key-value cache: one token in each of many, or stretches of a few.

Both plans write the new keys and values first and then read the cache, also for what was just
written. So a cache in lower precision gives the same, however a text is cut into passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.model.kv_cache import KVCache
from llamita.model.precision import wants_float32
from llamita.model.rope import RotaryEmbedding, rotate, turn

Tables = tuple[Tensor, Tensor]

# Queries read at a time. A block of them looks at no key after its last, so that little of what is
# masked is computed: on a CPU a quarter faster at 512 tokens than one call that knows it is causal.
_QUERIES = 128


class DecodePlan:
    """One token in each of B slots, which must ascend.

    Slots side by side are read in place; others are gathered.
    """

    def __init__(
        self, cache: KVCache, rope: RotaryEmbedding, slots: Sequence[int], positions: Sequence[int]
    ) -> None:
        for slot, position in zip(slots, positions, strict=True):
            cache.fill(slot, position + 1)
        at = torch.tensor(positions, device=cache.device)
        index = torch.tensor(slots, device=cache.device)
        places = min(max(positions) + 1, cache.size)
        held = cache.positions_held(at + 1, places)
        side_by_side = slots[-1] - slots[0] + 1 == len(slots)
        self._cache = cache
        self._rows = slice(slots[0], slots[-1] + 1) if side_by_side else index
        self._places = places
        self._written = cache.places(index, at)
        self._mask = _mask(held[:, None], at[:, None], cache.window)
        self._tables = rope.tables(at[:, None], at + 1)
        self._key_tables = rope.tables(held.clamp(min=0), at + 1) if rope.is_dynamic else None

    def attend(self, layer: int, qk: Tensor, v: Tensor) -> Tensor:
        """As `CachePlan.attend`."""
        kv_heads = v.shape[1]
        q, k = _rotated(qk, self._tables, kv_heads, keys_too=self._key_tables is None)
        self._cache.write(layer, self._written, k, v)
        keys, values = self._cache.layer(layer)
        # Query heads that share keys are the rows of one product: [B, K, H / K, D].
        q = q.view(q.shape[0], kv_heads, -1, q.shape[2])
        keys = keys[self._rows, :, : self._places].to(q.dtype)
        values = values[self._rows, :, : self._places].to(q.dtype)
        if self._key_tables is not None:
            keys = rotate(keys, *self._key_tables)
        return _mix(q, keys, values, self._mask).flatten(1)


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
        self._tables = _joined([part.tables for part in self._parts])
        self._written = torch.cat([part.written for part in self._parts])
        self._rotates_keys = not rope.is_dynamic

    def attend(self, layer: int, qk: Tensor, v: Tensor) -> Tensor:
        """As `CachePlan.attend`."""
        q, k = _rotated(qk, self._tables, v.shape[1], keys_too=self._rotates_keys)
        self._cache.write(layer, self._written, k, v)
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
        self.tables = rope.tables(at[:, None], lengths.expand(len(at)))
        self.written = cache.places(torch.full_like(at, stretch.slot), at)
        self._slot = stretch.slot
        self._places = min(end, cache.size)
        held = cache.positions_held(at[-1:] + 1, self._places)
        self._key_tables = rope.tables(held.clamp(min=0), lengths) if rope.is_dynamic else None
        self._blocks = []
        for first in range(0, stretch.length, _QUERIES):
            queries = at[first : first + _QUERIES]
            last = stretch.start + first + len(queries)
            places = last if end <= cache.size else self._places
            is_causal = places == len(queries) and cache.window is None
            mask = None if is_causal else _mask(held[None, :, :places], queries[None], cache.window)
            rows = slice(begin + first, begin + first + len(queries))
            self._blocks.append((rows, places, mask, is_causal))

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> list[Tensor]:
        """The pass's queries q [N, H, D] against one layer's cache: [T, H × D] for each block."""
        dtype = q.dtype
        if wants_float32(q, self._blocks[0][0].stop - self._blocks[0][0].start):
            q = q.float()
        keys, values = self._read(keys, q.dtype), self._read(values, q.dtype)
        if self._key_tables is not None:
            keys = rotate(keys, *self._key_tables)
        outputs = []
        for rows, places, mask, is_causal in self._blocks:
            y = _mix(
                q[rows].transpose(0, 1)[None],
                keys[:, :, :places],
                values[:, :, :places],
                mask,
                is_causal,
            )
            outputs.append(y[0].transpose(0, 1).flatten(1).to(dtype))
        return outputs

    def _read(self, held: Tensor, dtype: torch.dtype) -> Tensor:
        return held[self._slot, None, :, : self._places].to(dtype)


def _rotated(qk: Tensor, tables: Tables, kv_heads: int, keys_too: bool) -> tuple[Tensor, Tensor]:
    """Queries and keys of qk [N, H + K, D]; `tables` [N, 1, D]."""
    queries = qk.shape[1] - kv_heads
    if keys_too:
        turned = turn(qk, *tables)
        return turned[:, :queries], turned[:, queries:]
    return turn(qk[:, :queries], *tables), qk[:, queries:]


def _mix(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, is_causal: bool = False
) -> Tensor:
    """Queries [B, H, T, D] over keys and values [B, K, S, D]."""
    return F.scaled_dot_product_attention(
        q,
        keys,
        values,
        attn_mask=None if mask is None else mask.to(q.dtype),
        is_causal=is_causal,
        enable_gqa=q.shape[1] != keys.shape[1],
    )


def _mask(held: Tensor, queries: Tensor, window: int | None) -> Tensor | None:
    """Which positions held [B, 1, S] the queries at positions [B, T] see; None where all.

    [B, 1, T, S], 0 or minus infinity, to be added.
    """
    seen = (held >= 0) & (held <= queries[..., None])
    if window is not None:
        seen &= held > queries[..., None] - window
    if bool(seen.all()):
        return None
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -math.inf)[:, None]


def _joined(tables: Sequence[Tables]) -> Tables:
    if len(tables) == 1:
        return tables[0]
    cosines, sines = zip(*tables, strict=True)
    return torch.cat(cosines), torch.cat(sines)

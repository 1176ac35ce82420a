"""Attention over the slots of a key-value cache: one token in each of many, or stretches of a few.

Both plans write the new keys and values first and then read the cache, also for what was just
written. So a cache in lower precision gives the same, however a text is cut into passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.model.kv_cache import KVCache
from llamita.model.rope import RotaryEmbedding, rotate

Tables = tuple[Tensor, Tensor]


class DecodePlan:
    """One token in each of B slots. The rows of the pass are [B, 1]; the slots must ascend.

    Slots side by side are read in place; others are gathered.
    """

    def __init__(
        self,
        cache: KVCache,
        rope: RotaryEmbedding,
        slots: Sequence[int],
        positions: Sequence[int],
    ) -> None:
        for slot, position in zip(slots, positions, strict=True):
            cache.fill(slot, position + 1)
        device = cache.device
        at = torch.tensor(positions, device=device)
        places = min(max(positions) + 1, cache.size)
        held = cache.positions_held(at + 1, places)
        self._cache = cache
        self._places = places
        self._index = torch.tensor(slots, device=device)
        self._written = at % cache.size
        side_by_side = slots[-1] - slots[0] + 1 == len(slots)
        self._rows = slice(slots[0], slots[-1] + 1) if side_by_side else self._index
        self._mask = _mask(held[:, None], at[:, None], cache.window)
        self._tables = rope.tables(at[:, None], at + 1)
        self._key_tables = rope.tables(held.clamp(min=0), at + 1) if rope.is_dynamic else None

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        """As `AttentionPlan.attend`."""
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        q = rotate(q, *self._tables)
        if self._key_tables is None:
            k = rotate(k, *self._tables)
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        keys[self._index, :, self._written] = k[:, :, 0].to(keys.dtype)
        values[self._index, :, self._written] = v[:, 0].to(values.dtype)
        y = _mix(
            q,
            keys[self._rows, :, : self._places],
            values[self._rows, :, : self._places],
            self._key_tables,
            self._mask,
        )
        return y.transpose(1, 2)


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
    """Stretches of several slots, one after the other: the rows of the pass are [1, N]."""

    def __init__(self, cache: KVCache, rope: RotaryEmbedding, stretches: Sequence[Stretch]) -> None:
        self._cache = cache
        self._parts = []
        begin, tables = 0, []
        for stretch in stretches:
            part = _Part(cache, rope, stretch, begin)
            self._parts.append(part)
            tables.append(part.tables)
            begin = part.rows.stop
        cosines, sines = zip(*tables, strict=True)
        self._tables = torch.cat(cosines, dim=1), torch.cat(sines, dim=1)
        self._rotates_at_once = not rope.is_dynamic

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        """As `AttentionPlan.attend`."""
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        q = rotate(q, *self._tables)
        if self._rotates_at_once:
            k = rotate(k, *self._tables)
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        outputs = [
            part.attend(q[:, :, part.rows], k[0, :, part.rows], v[0, :, part.rows], keys, values)
            for part in self._parts
        ]
        return torch.cat(outputs, dim=2).transpose(1, 2)


class _Part:
    """One stretch: where it lies in the pass and in the cache, and what it sees."""

    def __init__(self, cache: KVCache, rope: RotaryEmbedding, stretch: Stretch, begin: int) -> None:
        start, length = stretch.start, stretch.length
        end = start + length
        limit = cache.longest_segment
        if limit is not None and length > limit:
            raise ValueError(f"{length} tokens at once; a rolling cache takes {limit}")
        cache.fill(stretch.slot, end)
        at = torch.arange(start, end, device=cache.device)
        lengths = torch.tensor([max(stretch.row_length, end)], device=cache.device)
        self.rows = slice(begin, begin + length)
        self.tables = rope.tables(at[None], lengths)
        self._slot = stretch.slot
        self._places = min(end, cache.size)
        first = start % cache.size
        rolls = first + length > cache.size
        self._written: slice | Tensor = at % cache.size if rolls else slice(first, first + length)
        held = cache.positions_held(at[-1:] + 1, self._places)
        self._key_tables = rope.tables(held.clamp(min=0), lengths) if rope.is_dynamic else None
        window = cache.window
        self._is_causal = start == 0 and (window is None or end <= window)
        self._mask = None if self._is_causal else _mask(held[None], at[None, :], window)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """q [1, H, T, D] and k, v [K, T, D] against one layer's cache: [1, H, T, D]."""
        keys, values = keys[self._slot], values[self._slot]
        keys[:, self._written] = k.to(keys.dtype)
        values[:, self._written] = v.to(values.dtype)
        return _mix(
            q,
            keys[None, :, : self._places],
            values[None, :, : self._places],
            self._key_tables,
            self._mask,
            self._is_causal,
        )


def _mix(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    key_tables: Tables | None,
    mask: Tensor | None,
    is_causal: bool = False,
) -> Tensor:
    """Queries [B, H, T, D] over keys and values [B, K, S, D] of the cache."""
    keys, values = keys.to(q.dtype), values.to(q.dtype)
    if key_tables is not None:
        keys = rotate(keys, *key_tables)
    return F.scaled_dot_product_attention(
        q, keys, values, attn_mask=mask, is_causal=is_causal, enable_gqa=True
    )


def _mask(held: Tensor, queries: Tensor, window: int | None) -> Tensor | None:
    """Which positions held [B, 1, S] the queries at positions [B, T] see; None where all.

    [B, 1, T, S].
    """
    seen = (held >= 0) & (held <= queries[..., None])
    if window is not None:
        seen &= held > queries[..., None] - window
    return None if bool(seen.all()) else seen[:, None]

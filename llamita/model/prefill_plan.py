"""Attention of stretches of a few slots of a key-value cache, each of many tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.model.cached_attention import causal_mask, places_read, turn_and_write
from llamita.model.decode_plan import OneRead
from llamita.model.kv_cache import KVCache
from llamita.model.precision import wants_float32
from llamita.model.rope import RotaryEmbedding, rotate

# Queries read at a time on a CPU. A block of them looks at no key after its last, so that little of
# what is masked is computed: a quarter faster at 512 tokens than one call that knows it is causal.
_QUERIES = 128


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
        held = self.held(layer)
        q = turn_and_write(held, qkv, self._written, self._tables, self._turns_keys)
        keys, values = held
        outputs = [y for part in self._parts for y in part.attend(q, keys, values)]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def held(self, layer: int) -> Tensor:
        """As `CachePlan.held`."""
        return self._cache.held[layer]

    def in_one_read(self, dtype: torch.dtype) -> OneRead | None:
        """Never: stretches have blocks and lengths of their own."""
        return None


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
        self._places = end if stretch.start == 0 else places_read(end, cache)
        self._places = min(self._places, cache.size)
        held = cache.positions_held(at[-1:] + 1, self._places)
        self._key_tables = rope.tables(held.clamp(min=0), lengths) if rope.is_dynamic else None
        self._blocks: list[_Block] = []
        size = stretch.length if cache.is_on_gpu else _QUERIES
        for first in range(0, stretch.length, size):
            queries = at[first : first + size]
            places = self._places
            if end <= cache.size and not cache.is_on_gpu:
                places = stretch.start + first + len(queries)
            sees_all = places <= (cache.window or places)  # but what is yet to come
            is_causal = sees_all and places == len(queries)
            mask = None
            if not is_causal and not (sees_all and places == end and stretch.length == 1):
                mask = causal_mask(held[None, :, :places], queries[None], cache.window)
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

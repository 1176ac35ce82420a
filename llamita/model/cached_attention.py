"""What passes over the slots of a key-value cache share: turning, writing, masks.

Both plans write the new keys and values first and then read the cache, also for what was just
written. So a cache in lower precision gives the same, however a text is cut into passes. What a
plan needs to decide, it decides from Python's integers: asking a GPU would make it wait.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from llamita.model.kv_cache import KVCache, write
from llamita.model.rope import turn_

Tables = tuple[Tensor, Tensor]

# On a GPU, as many places are read as fill whole blocks of these, so that shapes repeat.
_PLACES_ON_GPU = 256


def turn_and_write(
    held: Tensor, qkv: Tensor, places: Tensor, tables: Tables, turns_keys: bool
) -> Tensor:
    """Turn the queries, and the keys if asked; write keys and values; give the queries [N, H, D].

    Keys stay as they are where the angle of a position changes with the length of its row.
    held: one layer's [2, slots, K, size, D].
    """
    kv_heads = held.shape[2]
    heads = qkv.shape[1] - 2 * kv_heads
    turn_(qkv[:, : heads + kv_heads] if turns_keys else qkv[:, :heads], *tables)
    write(held, places, qkv[:, heads:])
    return qkv[:, :heads]


def by_shared_keys(q: Tensor, keys: Tensor) -> Tensor:
    """Query heads [B, H, D] that share keys, as the rows of one product: [B, K, H / K, D]."""
    return q.reshape(q.shape[0], keys.shape[1], -1, q.shape[2])


def places_read(end: int, cache: KVCache) -> int:
    """How many places of a slot that holds the positions before `end` one call reads."""
    if cache.is_on_gpu:
        end = in_blocks(end, _PLACES_ON_GPU)
    return min(end, cache.size)


def in_blocks(places: int, size: int) -> int:
    return -(-places // size) * size


def causal_mask(held: Tensor, queries: Tensor, window: int | None) -> Tensor:
    """Which positions held [B, 1, S] the queries at positions [B, T] see.

    [B, 1, T, S], 0 or minus infinity, to be added.
    """
    seen = (held >= 0) & (held <= queries[..., None])
    if window is not None:
        seen &= held > queries[..., None] - window
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -math.inf)[:, None]

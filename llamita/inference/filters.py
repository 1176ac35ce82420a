"""Which tokens may be drawn: top-k, typical, top-p and min-p sampling.

Each function takes one row's logits [N] (finite or minus infinity, at least one finite) and gives
the places of those to keep, ascending. Of equal logits the lower places come first, so that the
result never depends on the order in which a machine happens to sort. At least one is kept.

A vocabulary is large and what is kept of it mostly few: they are found by bounds and partitions,
and all of it is sorted only where thousands of tokens are kept.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from llamita.inference.backend import Logits

Places = NDArray[np.intp]

_FEW = 256  # places that top_p and typical look at before they look at all
_BUCKETS_PER_NAT = np.float32(128)
_LAST_BUCKET = 4095


def keep_top_k(logits: Logits, k: int) -> Places:
    """The k highest; 0, or k of at least N, keeps all."""
    return _all(logits) if k == 0 else _highest(logits, k)


def keep_typical(logits: Logits, p: float) -> Places:
    """The fewest whose probabilities sum to at least p, those of the most typical information.

    Typical is an information (the negative logarithm of the probability) near its own mean, the
    entropy: Meister et al. 2022, arXiv:2202.00666. The likeliest may be among those left out.
    """
    if p >= 1.0:
        return _all(logits)
    shifted = _shifted(logits)
    weights = np.exp(shifted)
    total = float(weights.sum(dtype=np.float64))
    # Where a weight is 0 its logit, maybe minus infinity, does not count.
    mean = float((weights * np.maximum(shifted, np.float32(-1e4))).sum(dtype=np.float64)) / total
    # The information is log(total) - shifted, and the entropy log(total) - mean.
    return _fewest(np.abs(shifted - np.float32(mean)), weights, p)


def keep_top_p(logits: Logits, p: float) -> Places:
    """The fewest likeliest whose probabilities sum to at least p, the one that crosses p included.

    Holtzman et al. 2020, arXiv:1904.09751.
    """
    if p >= 1.0:
        return _all(logits)
    shifted = _shifted(logits)
    return _fewest(np.abs(shifted), np.exp(shifted), p)


def keep_min_p(logits: Logits, min_p: float) -> Places:
    """Those of at least `min_p` times the likeliest one's probability (arXiv:2407.01082)."""
    if min_p == 0.0:
        return _all(logits)
    return np.flatnonzero(_shifted(logits) >= np.float32(math.log(min_p)))


def highest_first(logits: Logits, count: int) -> Places:
    """The places of the `count` highest logits (or of all, if there are fewer), highest first."""
    places = _highest(logits, count) if count else np.zeros(0, dtype=np.intp)
    return places[np.argsort(-logits[places], kind="stable")]


def _all(logits: Logits) -> Places:
    return np.arange(len(logits))


def _shifted(logits: Logits) -> Logits:
    """The logits with their highest at 0, which changes no probability."""
    best = logits.max()
    shifted: Logits = logits - best if best else logits
    return shifted


def _fewest(distances: Logits, weights: Logits, share: float) -> Places:
    """The fewest places, nearest first, that hold `share` of all weight, ascending."""
    target = share * float(weights.sum(dtype=np.float64))
    few = _highest(-distances, _FEW)
    nearest, reached = _nearest_first(few, distances, weights)
    if reached[-1] >= target or len(few) == len(distances):
        nearest = nearest[: 1 + reached.searchsorted(target)]
        nearest.sort()
        return nearest
    # Many are kept. They are dealt into buckets by their distance, and only the one in which the
    # weight is reached is sorted.
    buckets = np.minimum(distances * _BUCKETS_PER_NAT, _LAST_BUCKET).astype(np.int32)
    filled = np.bincount(buckets, weights, minlength=_LAST_BUCKET + 1).cumsum()
    crossing = min(int(filled.searchsorted(target)), _LAST_BUCKET)
    kept = buckets < crossing
    nearest, reached = _nearest_first(np.flatnonzero(buckets == crossing), distances, weights)
    if crossing:
        reached += filled[crossing - 1]
    kept[nearest[: 1 + reached.searchsorted(target)]] = True
    return np.flatnonzero(kept)


def _nearest_first(
    places: Places, distances: Logits, weights: Logits
) -> tuple[Places, NDArray[np.float64]]:
    """`places` by their distance, lower ones first among equals, and the weight up to each."""
    # Distances are no less than 0, and the bits of such floats sort as they do. With the place in
    # the lower half of a number, sorting numbers does it all.
    keys = distances[places].view(np.uint32).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= places.astype(np.uint64)
    keys.sort()
    keys &= np.uint64(0xFFFFFFFF)
    nearest = keys.astype(np.intp)
    return nearest, weights[nearest].astype(np.float64).cumsum()


def _highest(scores: Logits, count: int) -> Places:
    """The places of the `count` highest, ascending; of equals the lower places."""
    if count >= len(scores):
        return _all(scores)
    places = _shortlist(scores, count)
    values = scores[places]
    if len(places) > count:
        lowest = _nth_highest(values, count)
        kept = values >= lowest
        places, values = places[kept], values[kept]
    too_many = len(places) - count
    if too_many:
        places = np.delete(places, np.flatnonzero(values == lowest)[-too_many:])
    return places


def _shortlist(scores: Logits, count: int) -> Places:
    """The places of a few scores, ascending, the `count` highest and their equals among them.

    With the scores dealt into groups, the count-th of the groups' maxima is no higher than the
    count-th of all scores, and nearly as high where the groups are many.
    """
    groups = max(512, 4 * count)
    depth = len(scores) // groups
    if depth < 4:
        return _all(scores)
    maxima = scores[: depth * groups].reshape(depth, groups).max(axis=0)
    return np.flatnonzero(scores >= _nth_highest(maxima, count))


def _nth_highest(scores: Logits, count: int) -> np.float32:
    sorted_at = len(scores) - count
    value: np.float32 = np.partition(scores, sorted_at)[sorted_at]
    return value

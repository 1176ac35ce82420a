"""Sampling written the slow way, in plain Python on doubles: what the fast one must equal."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from llamita.inference.params import SamplingParams

# Few distinct values, so that ties are common; differences far above rounding.
LOGIT = st.integers(-12, 12).map(lambda step: step * 0.5)
ROW = st.lists(LOGIT, min_size=1, max_size=12)


def softmax(scores: dict[int, float]) -> dict[int, float]:
    best = max(scores.values())
    weights = {i: math.exp(x - best) for i, x in scores.items()}
    total = math.fsum(weights.values())
    return {i: weight / total for i, weight in weights.items()}


def best_first(scores: dict[int, float]) -> list[int]:
    return sorted(scores, key=lambda i: (-scores[i], i))


def typical_first(scores: dict[int, float]) -> list[int]:
    shares = softmax(scores)
    information = {i: -math.log(share) if share else math.inf for i, share in shares.items()}
    entropy = math.fsum(shares[i] * information[i] for i in shares if shares[i])
    # Rounded: what differs by less is the same information in other digits.
    return sorted(scores, key=lambda i: (round(abs(information[i] - entropy), 6), i))


def fewest(order: list[int], shares: dict[int, float], p: float) -> tuple[list[int], float]:
    """The first of `order` that reach p, and how far the sum was from p at the nearest."""
    kept: list[int] = []
    reached = 0.0
    gap = 1.0
    for i in order:
        if kept:
            gap = min(gap, abs(reached - p))
            if reached >= p:
                break
        kept.append(i)
        reached += shares[i]
    return kept, gap


def adjusted(
    row: list[float],
    params: SamplingParams,
    prompt: list[int],
    output: list[int],
    allowed: set[int] | None,
) -> dict[int, float]:
    """The scores of the tokens that are not ruled out, before the temperature."""
    text = prompt + output
    scores = dict(enumerate(row))
    for i in scores:
        if i in text:
            if scores[i] > 0:
                scores[i] /= params.repetition_penalty
            else:
                scores[i] *= params.repetition_penalty
        if i in output:
            scores[i] -= params.frequency_penalty * output.count(i) + params.presence_penalty
        scores[i] += dict(params.logit_bias).get(i, 0.0)
    for i in list(scores):
        ruled_out = i in params.banned_token_ids or (allowed is not None and i not in allowed)
        if ruled_out or repeats(text, i, params.no_repeat_ngram_size) or scores[i] == -math.inf:
            del scores[i]
    return scores


def repeats(text: list[int], token: int, size: int) -> bool:
    """Whether the token would end a run of `size` that the text holds already."""
    if size == 0 or len(text) < size:
        return False
    run = [*text, token][-size:]
    return any(text[start : start + size] == run for start in range(len(text) - size + 1))


def plain_choice(
    row: list[float],
    params: SamplingParams,
    key: int,
    prompt: list[int] = (),
    output: list[int] = (),
    allowed: set[int] | None = None,
) -> tuple[int | None, float]:
    """The token by the documented order (None: there is none), and how near a choice came to
    another: at a border rounding decides.
    """
    scores = adjusted(row, params, list(prompt), list(output), allowed)
    if not scores:
        return None, 1.0
    if params.temperature == 0:
        return best_first(scores)[0], 1.0
    scores = {i: x / params.temperature for i, x in scores.items()}
    gap = 1.0
    if params.top_k:
        scores = {i: scores[i] for i in best_first(scores)[: params.top_k]}
    if params.typical_p < 1:
        kept, near = fewest(typical_first(scores), softmax(scores), params.typical_p)
        scores, gap = {i: scores[i] for i in kept}, min(gap, near)
    if params.top_p < 1:
        kept, near = fewest(best_first(scores), softmax(scores), params.top_p)
        scores, gap = {i: scores[i] for i in kept}, min(gap, near)
    if params.min_p > 0:
        shares = softmax(scores)
        best = max(shares.values())
        distances = [abs(share - params.min_p * best) for share in shares.values() if share != best]
        gap = min([gap, *distances])
        scores = {i: scores[i] for i in scores if shares[i] >= params.min_p * best}
    shares = softmax(scores)
    # Each token has a clock that rings after its noise over its probability; the first is drawn.
    soonest = sorted((clock(i, key) / share, i) for i, share in shares.items() if share > 0)
    if len(soonest) > 1:
        gap = min(gap, soonest[1][0] / soonest[0][0] - 1)
    return soonest[0][1], gap


def clock(token_id, key):
    """An exponential variable of the token: two rounds of a 32-bit hash with the key's halves."""
    bits = token_id * 0x9E3779B1 % 2**32
    for half in (key % 2**32, key // 2**32):
        bits = (bits + half) % 2**32
        bits ^= bits >> 16
        bits = bits * 0x21F0AAAD % 2**32
        bits ^= bits >> 15
        bits = bits * 0x735A2D97 % 2**32
        bits ^= bits >> 15
    return -math.log1p(-(bits + 0.5) / 2**32)

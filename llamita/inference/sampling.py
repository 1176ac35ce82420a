"""Turns logits into the next token: small functions on logits [B, V], applied in one order.

    repetition penalty -> temperature -> top_k -> top_p -> min_p -> sample

Each function takes and gives logits [B, V] in float32; a token that is ruled out gets minus
infinity. Equal logits are told apart by the lower id, so that the result never depends on the
order in which a device happens to sort. The first token of the order is never ruled out.

Randomness comes as one uniform number per token from a generator of the row's own
(`UniformStream`), and the token is read off the cumulative distribution. A row's tokens hence
depend on its own seed alone, not on the rows beside it or on the device.
"""

from __future__ import annotations

import math
import secrets

import torch
from torch import Tensor

from llamita.inference.params import MAX_SEED, SamplingParams

NO_TOKEN = -1
"""What `greedy` and `sample` give for a row whose logits hold no distribution (NaN)."""

_FEW = 256  # tokens that top_p looks at before it sorts the vocabulary
_SMALLEST_TEMPERATURE = 1e-30  # float32 cannot divide by much less; the result is argmax anyway


def apply_repetition_penalty(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Divide positive and multiply negative logits [B, V] where `seen` (bool [B, V])."""
    penalized = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, penalized, logits)


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Divide by `temperature` (above 0) after moving each row's maximum to 0.

    The shift changes no probability, and keeps tiny temperatures from overflowing.
    """
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    return shifted / max(temperature, _SMALLEST_TEMPERATURE)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k highest logits of each row; 0, or k of at least V, keeps all."""
    if k == 0 or k >= logits.shape[-1]:
        return logits
    threshold = logits.topk(k, dim=-1).values[:, -1:]
    return _keep_best(logits, threshold, torch.full_like(threshold, k))


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest likeliest tokens of each row whose probabilities sum to at least p."""
    if p >= 1.0:
        return logits
    total = logits.logsumexp(dim=-1, keepdim=True)
    # A few hundred tokens nearly always reach p, and finding them is far cheaper than a sort.
    best = logits.topk(min(_FEW, logits.shape[-1]), dim=-1).values
    reached = (best - total).exp().cumsum(dim=-1)
    if best.shape[-1] < logits.shape[-1] and bool((reached[:, -1] < p).any()):
        best = logits.sort(dim=-1, descending=True).values
        reached = (best - total).exp().cumsum(dim=-1)
    count = 1 + (reached[:, :-1] < p).sum(dim=-1, keepdim=True)
    return _keep_best(logits, best.gather(-1, count - 1), count)


def _keep_best(logits: Tensor, threshold: Tensor, count: Tensor) -> Tensor:
    """Keep `count` [B, 1] logits of each row, of which `threshold` [B, 1] is the lowest.

    Of several equal to the threshold, those of the lowest ids.
    """
    above = logits > threshold
    ties = logits == threshold
    room_for_ties = count - above.sum(dim=-1, keepdim=True)
    keep = above | (ties & (ties.cumsum(dim=-1) <= room_for_ties))
    return logits.masked_fill(~keep, -math.inf)


def keep_min_p(logits: Tensor, min_p: float) -> Tensor:
    """Keep the tokens of at least `min_p` times the likeliest token's probability."""
    if min_p == 0.0:
        return logits
    threshold = logits.amax(dim=-1, keepdim=True) + math.log(min_p)
    return logits.masked_fill(logits < threshold, -math.inf)


def greedy(logits: Tensor) -> Tensor:
    """The likeliest token of each row [B], NO_TOKEN where the row holds NaN."""
    best, token_ids = logits.max(dim=-1)
    return torch.where(best.isnan(), NO_TOKEN, token_ids)


def sample(logits: Tensor, uniform: Tensor) -> Tensor:
    """Read a token of each row off its distribution: the first whose cumulated share passes u.

    logits [B, V]; uniform [B], from [0, 1). Gives [B], NO_TOKEN where the row holds NaN. A token
    of probability 0 is never given.
    """
    cumulated = logits.softmax(dim=-1).cumsum(dim=-1)
    total = cumulated[:, -1:].contiguous()
    target = uniform.to(total)[:, None] * total
    # The first place where the sum passes the target is one where it grows, so its probability
    # is above 0. Rounding may bring the target up to the total: then the last place that grew.
    passed = torch.searchsorted(cumulated, target, right=True)
    last = torch.searchsorted(cumulated, total, right=False)
    token_ids = torch.minimum(passed, last)
    return torch.where(total.isnan(), NO_TOKEN, token_ids)[:, 0]


def choose(logits: Tensor, params: SamplingParams, seen: Tensor | None, uniform: Tensor) -> Tensor:
    """The next token of each row [B]: all the steps above, in their order.

    logits [B, V] in any precision, computed on in float32. seen: bool [B, V], needed where there
    is a repetition penalty. uniform [B]: not looked at when the temperature is 0.
    """
    logits = logits.float()
    if params.repetition_penalty != 1.0 and seen is not None:
        logits = apply_repetition_penalty(logits, seen, params.repetition_penalty)
    if params.temperature == 0:
        return greedy(logits)
    logits = apply_temperature(logits, params.temperature)
    if 0 < params.top_k < logits.shape[-1]:
        return _choose_of_few(logits, params, uniform)
    return sample(keep_min_p(keep_top_p(logits, params.top_p), params.min_p), uniform)


def _choose_of_few(logits: Tensor, params: SamplingParams, uniform: Tensor) -> Tensor:
    """`choose` from top_k on, on the k kept tokens alone: top_p then sorts k instead of V."""
    kept = keep_top_k(logits, params.top_k)
    candidate_ids = kept.topk(params.top_k, dim=-1).indices.sort(dim=-1).values
    candidates = kept.gather(-1, candidate_ids)
    candidates = keep_min_p(keep_top_p(candidates, params.top_p), params.min_p)
    position = sample(candidates, uniform)
    chosen = candidate_ids.gather(-1, position.clamp(min=0)[:, None])[:, 0]
    return torch.where(position == NO_TOKEN, NO_TOKEN, chosen)


class UniformStream:
    """Uniform numbers of [0, 1) for B rows, one number a row and step, each row from its own seed.

    Drawn in blocks on the CPU, so that a step costs no call into a generator and the numbers are
    the same on every device.
    """

    _BLOCK = 64

    def __init__(self, rows: int, seed: int | None, device: torch.device) -> None:
        self._generators = [torch.Generator() for _ in range(rows)]
        for generator in self._generators:
            generator.manual_seed(secrets.randbelow(MAX_SEED) if seed is None else int(seed))
        self._device = device
        self._step = 0
        self._block = torch.empty(0)

    def next(self) -> Tensor:
        """The numbers [B] of the next step."""
        column = self._step % self._BLOCK
        if column == 0:
            draws = [torch.rand(self._BLOCK, generator=row) for row in self._generators]
            self._block = torch.stack(draws, dim=1).to(self._device)
        self._step += 1
        return self._block[column]

    def keep_rows(self, rows: list[int]) -> None:
        """Go on with these rows alone, in this order."""
        self._generators = [self._generators[row] for row in rows]
        if self._block.numel():
            self._block = self._block[:, rows]

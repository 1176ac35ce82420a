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

import difflib
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from llamita.errors import GenerationError

NO_TOKEN = -1
"""What `greedy` and `sample` give for a row whose logits hold no distribution (NaN)."""

_SMALLEST_TEMPERATURE = 1e-30  # float32 cannot divide by much less; the result is argmax anyway
_MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class SamplingParams:
    """How one request is sampled and when it stops. Wrong values raise GenerationError.

    max_tokens: at most so many new tokens; None: as many as the context holds.
    temperature: 0 takes the most likely token always; 1 samples from the model as it is; a little
        below 1 suits small models, whose unlikely tokens are often wrong.
    top_k: only the k most likely tokens; 0 (or a number above the vocabulary) is off.
    top_p: the fewest likeliest tokens whose probability reaches p (Holtzman et al. 2020,
        arXiv:1904.09751), the one that crosses p among them; 1 is off.
    min_p: tokens of at least min_p times the likeliest one's probability (arXiv:2407.01082);
        0 is off.
    repetition_penalty: tokens seen in the prompt or the output get positive logits divided and
        negative ones multiplied by it (CTRL, arXiv:1909.05858); 1 is off.
    seed: the same seed gives the same tokens; None draws a new one for each prompt.
    stop: strings that end the text; they are not shown.
    stop_token_ids: tokens that end the text; None: the model's own; (): none.
    """

    max_tokens: int | None = 256
    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _check_integer("max_tokens", self.max_tokens, "0 or more, or None", lowest=0)
        _check_number("temperature", self.temperature, "0 or more", lowest=0.0)
        _check_integer("top_k", self.top_k, "0 (off) or more", lowest=0)
        _check_number("top_p", self.top_p, "from 0 to 1 (off)", lowest=0.0, highest=1.0)
        _check_number("min_p", self.min_p, "from 0 (off) to 1", lowest=0.0, highest=1.0)
        _check_number("repetition_penalty", self.repetition_penalty, "above 0; 1 is off", above=0.0)
        if self.seed is not None:
            allowed = "from 0 to 2**63 - 1, or None"
            _check_integer("seed", self.seed, allowed, lowest=0, highest=_MAX_SEED)
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "stop_token_ids", _stop_token_ids(self.stop_token_ids))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> SamplingParams:
        """From keyword arguments; a name that is none of the fields raises GenerationError."""
        names = [field.name for field in fields(cls)]
        for name in settings:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"Did you mean {near[0]!r}? " if near else ""
                raise GenerationError(
                    f"there is no generation setting {name!r}.",
                    hint=f"{hint}The settings are: {', '.join(names)}.",
                )
        return cls(**settings)


def _wrong_value(name: str, value: Any, allowed: str) -> GenerationError:
    return GenerationError(f"{name} is {value!r}.", hint=f"{name} must be {allowed}.")


def _check_integer(
    name: str, value: Any, allowed: str, lowest: int, highest: int | None = None
) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise _wrong_value(name, value, f"a whole number, {allowed}")
    if int(value) < lowest or (highest is not None and int(value) > highest):
        raise _wrong_value(name, value, allowed)


def _check_number(
    name: str,
    value: Any,
    allowed: str,
    *,
    lowest: float = -math.inf,
    highest: float = math.inf,
    above: float = -math.inf,
) -> None:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise _wrong_value(name, value, f"a number, {allowed}")
    number = float(value)
    if not math.isfinite(number) or not (lowest <= number <= highest and number > above):
        raise _wrong_value(name, value, allowed)


def _stop_strings(value: Any) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else value
    allowed = "a string or a list of strings, none of them empty"
    if not isinstance(strings, list | tuple):
        raise _wrong_value("stop", value, allowed)
    if not all(isinstance(string, str) and string for string in strings):
        raise _wrong_value("stop", value, allowed)
    return tuple(strings)


def _stop_token_ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    allowed = "None (the model's own) or a list of token ids"
    if not isinstance(value, list | tuple | set | frozenset):
        raise _wrong_value("stop_token_ids", value, allowed)
    for token_id in value:
        if not isinstance(token_id, Integral) or isinstance(token_id, bool) or int(token_id) < 0:
            raise _wrong_value("stop_token_ids", value, allowed)
    return tuple(int(token_id) for token_id in value)


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
    above = logits > threshold
    ties = logits == threshold
    room_for_ties = k - above.sum(dim=-1, keepdim=True)
    keep = above | (ties & (ties.cumsum(dim=-1) <= room_for_ties))
    return logits.masked_fill(~keep, -math.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest likeliest tokens of each row whose probabilities sum to at least p."""
    if p >= 1.0:
        return logits
    descending, order = logits.sort(dim=-1, descending=True, stable=True)
    reached = descending.softmax(dim=-1).cumsum(dim=-1)
    drop = torch.zeros_like(order, dtype=torch.bool)
    drop[:, 1:] = reached[:, :-1] >= p
    return logits.masked_fill(torch.empty_like(drop).scatter_(-1, order, drop), -math.inf)


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
            generator.manual_seed(secrets.randbelow(_MAX_SEED) if seed is None else int(seed))
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

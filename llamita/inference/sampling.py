"""Turns logits into the next token, row by row, in one order.

    repetition penalty -> frequency and presence penalties -> logit bias -> masks (the vocabulary's
    padding, banned tokens, repeated n-grams, the constraint) -> temperature -> top_k -> typical_p
    -> top_p -> min_p -> sample

At temperature 0 the likeliest token is taken after the masks. All is computed in float32, sums of
probabilities in float64, and of equal logits the lower id comes first.

Randomness comes from a stream of the row's own (`noise`), as noise of each token. A row's
tokens depend on its own logits, settings and seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from llamita.errors import GenerationError
from llamita.inference.backend import Logits
from llamita.inference.filters import (
    Places,
    highest_first,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    keep_typical,
)
from llamita.inference.history import History
from llamita.inference.noise import Key, race
from llamita.inference.params import SamplingParams
from llamita.inference.penalties import (
    add_bias,
    apply_frequency_penalties,
    apply_repetition_penalty,
    mask_out,
)

__all__ = [
    "NO_TOKEN",
    "Mask",
    "TokenLogprob",
    "apply_temperature",
    "choose",
    "log_probabilities",
    "no_token_error",
]

Mask: TypeAlias = "NDArray[np.uint32]"
"""A constraint's tokens as bits [ceil(V / 32)]:
token t is bit t % 32, from the low end, of word t // 32.
"""

NO_TOKEN = -1
"""What `choose` gives for a row that has no distribution: NaN, or every token is masked."""

_TEMPERATURES = (1e-30, 1e30)  # float32 cannot divide by much less or more: the limits are reached


def choose(
    logits: Logits,
    params: SamplingParams,
    history: History,
    key: Key,
    mask: Mask | None = None,
) -> int:
    """A row's next token: all the steps above, in their order.

    logits: [V], which are left as they are; those from history's vocab_size on are padding.
    history: what the row has seen. key: the noise of the draw, not looked at at temperature 0.
    mask: the tokens that the row's constraint lets follow, or None.

    Gives NO_TOKEN where there is no distribution; `no_token_error` says why.
    """
    with np.errstate(over="ignore"):  # to minus infinity: a probability of 0, as it should be
        return _choose(logits[: history.vocab_size], params, history, key, mask)


def _choose(
    logits: Logits, params: SamplingParams, history: History, key: Key, mask: Mask | None
) -> int:
    row = _adjusted(logits, params, history)
    ids: Places | None = None
    if mask is not None:
        bits = _allowed(mask, len(row))
        # Whatever are fewer, those let through or those ruled out, are the cheaper ones to list.
        if 2 * np.count_nonzero(bits) > len(bits):
            row = mask_out(row, np.flatnonzero(~bits))
        else:
            ids = np.flatnonzero(bits)
            row = row[ids]
    if not len(row):
        return NO_TOKEN
    best = int(row.argmax())
    if not np.isfinite(row[best]):
        return NO_TOKEN
    if params.temperature != 0:
        row = apply_temperature(row, params.temperature)
        return _draw(row, ids, params, key)
    return best if ids is None else int(ids[best])


def _adjusted(row: Logits, params: SamplingParams, history: History) -> Logits:
    """The logits of one row after the penalties, the bias and the masks but the constraint's."""
    if history.seen is not None:
        row = apply_repetition_penalty(row, history.seen.ids, params.repetition_penalty)
    if history.written is not None:
        row = apply_frequency_penalties(
            row,
            history.written.ids,
            history.written.counts,
            params.frequency_penalty,
            params.presence_penalty,
        )
    if len(history.bias_ids):
        row = add_bias(row, history.bias_ids, history.biases)
    if len(history.banned_ids):
        row = mask_out(row, history.banned_ids)
    if history.ngrams is not None:
        repeating = [i for i in history.ngrams.repeating() if 0 <= i < len(row)]
        if repeating:
            row = mask_out(row, np.array(repeating, dtype=np.intp))
    return row


def _draw(logits: Logits, ids: Places | None, params: SamplingParams, key: Key) -> int:
    """A token drawn from logits [N] that the temperature has been applied to.

    ids: the token at each place; None where they are the places themselves.
    """
    steps: tuple[tuple[Callable[[Logits, Any], Places], float, float], ...] = (
        (keep_top_k, params.top_k, 0),
        (keep_typical, params.typical_p, 1.0),
        (keep_top_p, params.top_p, 1.0),
        (keep_min_p, params.min_p, 0.0),
    )
    for keep, value, off in steps:
        if value != off:
            places = keep(logits, value)
            logits = logits[places]
            ids = places if ids is None else ids[places]
    place = race(np.exp(logits - logits.max()), ids, key)
    return place if ids is None else int(ids[place])


def apply_temperature(logits: Logits, temperature: float) -> Logits:
    """Divide by `temperature` (above 0) after moving the maximum to 0.

    The shift changes no probability, and keeps tiny temperatures from overflowing.
    """
    smallest, largest = _TEMPERATURES
    with np.errstate(over="ignore"):
        scaled: Logits = logits - logits.max()
        scaled /= np.float32(min(max(temperature, smallest), largest))
    return scaled


def _allowed(mask: Mask, vocab_size: int) -> NDArray[np.bool_]:
    """A constraint's mask as bools [V]; it may be short of the vocabulary."""
    octets = mask.astype("<u4", copy=False).view(np.uint8)
    return np.unpackbits(octets, bitorder="little", count=vocab_size).view(np.bool_)


def no_token_error(
    logits: Logits, params: SamplingParams, history: History, mask: Mask | None = None
) -> GenerationError:
    """Why `choose` gave NO_TOKEN for the row with these logits [V]."""
    names = ("banned_token_ids", "no_repeat_ngram_size")
    masks = [name for name in names if getattr(params, name)]
    if mask is not None:
        masks.append(params.constraint[0] if params.constraint else "the constraint")
    if not masks or not np.isfinite(logits[: history.vocab_size].max()):
        return GenerationError(
            "the model's logits are not numbers (NaN): its weights or their precision are bad.",
            hint="Try dtype float32, or another checkpoint of the run.",
        )
    return GenerationError(
        f"no token may follow: {' and '.join(masks)} rule out all of them.",
        hint="Take one of these settings back, or loosen it.",
    )


@dataclass(frozen=True)
class TokenLogprob:
    """A token's log-probability, and those of the likeliest tokens in its place, likeliest first.

    top: pairs of token id and log-probability; the token itself may be among them.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def log_probabilities(logits: Logits, token_id: int, top: int) -> TokenLogprob:
    """The model's own log-probability of a token, before any setting, and of the `top` likeliest.

    logits: [V] without the padding of the vocabulary.
    """
    best = logits.max()
    with np.errstate(over="ignore"):
        total = float(best) + math.log(np.exp(logits - best).sum(dtype=np.float64))
    likeliest = highest_first(logits, top)
    pairs = [(int(token), float(logits[token]) - total) for token in likeliest]
    return TokenLogprob(token_id, float(logits[token_id]) - total, tuple(pairs))

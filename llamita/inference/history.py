"""What a row has read and written so far, kept for the settings that look back at it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from llamita.errors import GenerationError
from llamita.inference.params import SamplingParams


class History:
    """The tokens of one row, as its settings need them; what no setting looks at is not kept.

    prompt_ids may be empty. Tokens from vocab_size on (a vocabulary padded beyond the tokenizer's)
    are never drawn, so their counts are not kept.

    Raises:
        GenerationError: logit_bias or banned_token_ids name a token outside the vocabulary.
    """

    def __init__(self, prompt_ids: Sequence[int], params: SamplingParams, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        bias_ids = [token_id for token_id, _ in params.logit_bias]
        _check_ids("logit_bias", bias_ids, vocab_size)
        _check_ids("banned_token_ids", params.banned_token_ids, vocab_size)
        self.bias_ids = np.array(bias_ids, dtype=np.intp)
        self.biases = np.array([bias for _, bias in params.logit_bias], dtype=np.float32)
        self.banned_ids = np.array(params.banned_token_ids, dtype=np.intp)
        self.seen: TokenCounts | None = None
        self.written: TokenCounts | None = None
        self.ngrams: NGrams | None = None
        if params.repetition_penalty != 1.0:
            self.seen = TokenCounts(vocab_size, prompt_ids)
        if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
            self.written = TokenCounts(vocab_size)
        if params.no_repeat_ngram_size > 0:
            self.ngrams = NGrams(params.no_repeat_ngram_size, prompt_ids)

    def append(self, token_id: int) -> None:
        """Take the token that was drawn."""
        if self.seen is not None:
            self.seen.add(token_id)
        if self.written is not None:
            self.written.add(token_id)
        if self.ngrams is not None:
            self.ngrams.append(token_id)


class TokenCounts:
    """Which tokens came, and how often, as arrays [N] that grow: N different tokens."""

    def __init__(self, vocab_size: int, token_ids: Iterable[int] = ()) -> None:
        self._vocab_size = vocab_size
        self._places: dict[int, int] = {}
        self._ids = np.zeros(64, dtype=np.intp)
        self._counts = np.zeros(64, dtype=np.float32)
        for token_id in token_ids:
            self.add(token_id)

    def add(self, token_id: int) -> None:
        """Count one more token."""
        if not 0 <= token_id < self._vocab_size:
            return
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[place] = token_id
        self._counts[place] += 1

    @property
    def ids(self) -> NDArray[np.intp]:
        """The different tokens [N], in the order in which they first came."""
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> NDArray[np.float32]:
        """How often each of `ids` came [N]."""
        return self._counts[: len(self._places)]


class NGrams:
    """The runs of `size` tokens that a row holds, by their first size - 1."""

    def __init__(self, size: int, token_ids: Iterable[int] = ()) -> None:
        self._size = size
        self._followers: dict[tuple[int, ...], set[int]] = {}
        self._last: tuple[int, ...] = ()
        for token_id in token_ids:
            self.append(token_id)

    def append(self, token_id: int) -> None:
        """Take one more token."""
        if len(self._last) == self._size - 1:
            self._followers.setdefault(self._last, set()).add(token_id)
        # Not [-(size - 1):], which for single tokens would be all.
        self._last = (*self._last, token_id)[max(0, len(self._last) + 2 - self._size) :]

    def repeating(self) -> set[int]:
        """The tokens that would end a run which was there before."""
        return self._followers.get(self._last, set())


def _check_ids(name: str, token_ids: Sequence[int], vocab_size: int) -> None:
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise GenerationError(
                f"{name} names the token {token_id}, which the vocabulary does not have.",
                hint=f"This model's tokens are 0 to {vocab_size - 1}.",
            )

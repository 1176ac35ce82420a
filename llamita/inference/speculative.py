"""Speculative decoding without a second model: the text so far is what guesses its continuation.

Where a text repeats itself (code, summaries, a quoted passage), the tokens after the last time the
same few tokens stood there are likely next ("prompt lookup"). The engine reads such a draft in one
pass and draws a token at each of its places as it would have anyway: what the draft foresaw is
kept, the first token it did not is kept too, and the rest of the draft is thrown away. The tokens
are those without speculation, at any temperature.

A pass over several tokens costs more than a decode step, by how much depends on the machine
(`StepTimes` measures it). Whether the guesses come true is known for nothing: `PromptLookup` makes
one at every token, drafted or not, and sees what came. `plan` drafts as many tokens as make a step
worth the most, which on text that does not repeat itself is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

_LONGEST_NGRAM, _SHORTEST_NGRAM = 4, 2
_LONGEST_MATCH = 32  # tokens before the guess that are known to agree; more say no more
_MARGIN = 1.05  # a step must gain so much before tokens are drafted at all
_HALF_LIFE = 32  # guesses of one class, after which older ones count half
_SURE = 0.98

# How often a guess after so many equal tokens comes true, before a text has shown it. A match of
# 2^n tokens or more is of class n; each starts as if seen four times.
_FIRST_CHANCES = (0.0, 0.3, 0.5, 0.75, 0.85, 0.9)
_FIRST_WEIGHT = 4.0


class PromptLookup:
    """Guesses the tokens after `token_ids`, from where the last few of them stood before.

    token_ids: the prompt. max_draft: the most tokens guessed at once. `append` each token that
    follows, be it drafted or not. Memory and time are a constant for each token.
    """

    def __init__(self, token_ids: Sequence[int], max_draft: int) -> None:
        self.max_draft = max_draft
        self._tokens = ids = list(token_ids)
        # n-gram -> the place after it. The one that ends the text comes with the next token: it
        # would find itself.
        self._places: dict[tuple[int, ...], int] = {}
        for length in range(_SHORTEST_NGRAM, min(_LONGEST_NGRAM, len(ids)) + 1):
            starts = (ids[first : len(ids) - length + first] for first in range(length))
            grams = zip(*starts, strict=True)
            self._places.update(zip(grams, range(length, len(ids)), strict=True))
        self._source: int | None = None  # where the token stands that is guessed to come next
        self._matched = 0  # so many tokens before it agree with the text's last
        self._right = [chance * _FIRST_WEIGHT for chance in _FIRST_CHANCES]
        self._seen = [_FIRST_WEIGHT for _ in _FIRST_CHANCES]
        self._find()

    def append(self, token_id: int) -> None:
        """The token that came next; also teaches how much to trust the guesses."""
        if self._source is not None:
            self._learn(self._tokens[self._source] == token_id)
        end = len(self._tokens)
        for length in range(_SHORTEST_NGRAM, min(_LONGEST_NGRAM, end) + 1):
            self._places[tuple(self._tokens[end - length :])] = end
        self._tokens.append(token_id)
        follows = self._source is not None and self._tokens[self._source] == token_id
        if follows and self._matched >= _LONGEST_NGRAM:
            assert self._source is not None
            self._source += 1
            self._matched = min(self._matched + 1, _LONGEST_MATCH)
        else:
            self._find()

    def chances(self, limit: int) -> list[float]:
        """For each token of a draft of up to `limit`: how likely it is to be kept. They fall."""
        if self._source is None:
            return []
        chances = []
        kept = 1.0
        for count in range(min(limit, self.max_draft)):
            group = _match_class(self._matched + count)
            kept *= min(self._right[group] / self._seen[group], _SURE)
            chances.append(kept)
        return chances

    def continuation(self, limit: int) -> list[int]:
        """The guess itself, up to `limit` tokens and `max_draft`; empty where nothing repeats.

        It goes round where it reaches its own beginning: a text that repeats its last few tokens.
        """
        count = min(limit, self.max_draft)
        if self._source is None or count <= 0:
            return []
        found = self._tokens[self._source : self._source + count]
        period = len(found)
        return [found[place % period] for place in range(count)]

    def _find(self) -> None:
        """Look for the text's last tokens earlier in it: the longest n-gram, its latest place."""
        tokens, end = self._tokens, len(self._tokens)
        for length in range(min(_LONGEST_NGRAM, end), _SHORTEST_NGRAM - 1, -1):
            source = self._places.get(tuple(tokens[end - length :]))
            if source is not None:
                most = min(_LONGEST_MATCH, source)
                while length < most and tokens[source - length - 1] == tokens[end - length - 1]:
                    length += 1
                self._source, self._matched = source, length
                return
        self._source, self._matched = None, 0

    def _learn(self, right: bool) -> None:
        group = _match_class(self._matched)
        self._right[group] += right
        self._seen[group] += 1
        if self._seen[group] > _HALF_LIFE:
            self._right[group] /= 2
            self._seen[group] /= 2


class StepTimes:
    """How long a step with drafts takes next to one without, measured as they come.

    One is shared by all rows of a backend. Tokens never depend on it, only how soon they come.
    """

    _KEPT = 7  # the median of the last so many counts
    _TRUSTED = 3  # fewer may be a compilation or a hiccup
    _STALE = 256  # steps without a draft, after which one may be tried again

    def __init__(self) -> None:
        self._times: dict[tuple[int, int], deque[float]] = {}
        self._since_draft: dict[int, int] = {}

    def observe(self, rows: int, drafted: int, seconds: float) -> None:
        """A step of `rows` rows, which read `drafted` tokens (0: none) beside their own, is over.

        seconds: all that step's passes. A step that also read a prompt is not to be counted.
        """
        group = _rows_class(rows)
        key = (group, drafted.bit_length())
        self._times.setdefault(key, deque(maxlen=self._KEPT)).append(seconds)
        idle = 0 if drafted else self._since_draft.get(group, 0) + 1
        self._since_draft[group] = idle
        if idle and idle % self._STALE == 0:
            for (other, length), times in self._times.items():
                while other == group and length and len(times) >= self._TRUSTED:
                    times.popleft()

    def ratio(self, rows: int, drafted: int) -> float:
        """Seconds of a step with so many drafted tokens over those of a plain one."""
        group, length = _rows_class(rows), drafted.bit_length()
        plain = self._times.get((group, 0))
        measured = [at for at in range(1, length + 1) if (group, at) in self._times]
        guess = _first_ratio(length)
        if not plain or not measured:
            return guess
        # A length not tried yet costs more than the nearest shorter one by as much as was guessed.
        nearest = measured[-1]
        times = self._times[group, nearest]
        found = median(times) / median(plain) * guess / _first_ratio(nearest)
        return found if len(times) >= self._TRUSTED else min(found, 1.5 * guess)


def plan(
    lookups: Sequence[PromptLookup | None], limits: Sequence[int], times: StepTimes
) -> list[list[int]]:
    """The drafts, one for each row of a step, with which it yields the most tokens a second.

    lookups: None for a row without speculation. limits: the most tokens a row has room to read
    beside its own. All are empty where a plain decode step yields more.
    """
    rows = len(lookups)
    offers = [
        (chance, row)
        for row, (lookup, limit) in enumerate(zip(lookups, limits, strict=True))
        if lookup is not None
        for chance in lookup.chances(limit)
    ]
    # A row's chances fall, so the best of all rows' tokens are the beginning of each one's draft.
    offers.sort(key=lambda offer: -offer[0])
    best, best_count, expected = _MARGIN, 0, float(rows)
    ratio, length = 1.0, 0
    for count, (chance, _) in enumerate(offers, start=1):
        expected += chance
        if count.bit_length() != length:
            ratio, length = times.ratio(rows, count), count.bit_length()
        if expected / rows / ratio > best:
            best, best_count = expected / rows / ratio, count
    counts = [0] * rows
    for _, row in offers[:best_count]:
        counts[row] += 1
    return [
        lookup.continuation(count) if lookup is not None and count else []
        for lookup, count in zip(lookups, counts, strict=True)
    ]


def _match_class(matched: int) -> int:
    return min(matched.bit_length() - 1, len(_FIRST_CHANCES) - 1)


def _rows_class(rows: int) -> int:
    return (rows - 1).bit_length()


def _first_ratio(length: int) -> float:
    """Before anything is measured: low enough that drafts are tried, and so measured."""
    return 1.2 + 2.0**length / 64

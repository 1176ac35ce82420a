"""A model's tables for another vocabulary: which old rows each new row is made of.

A token that both vocabularies have keeps its row. Any other gets the mean of the rows of the
pieces that the old tokenizer cuts it into (fast vocabulary transfer, arXiv:2402.09977), and control
tokens, which have no pieces, the mean of all rows, with which a new token is about as likely as
tokens are on average (Hewitt 2021, "Initializing new word embeddings for pretrained language
models").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from llamita.errors import LlamitaError
from llamita.tokenizer import Tokenizer

Relation = Literal["same", "extended", "other"]


@dataclass(frozen=True)
class TokenRows:
    """Where the rows of a vocabulary come from.

    Attributes:
        relation: of the new vocabulary to the old one: the same ids for the same tokens; those and
            more behind them; or another vocabulary.
        sources: for each new id the old ids whose mean it is; none stands for the mean of all.
        old_size: tokens of the old vocabulary; rows beyond it are padding.
        carried, from_pieces, from_mean: how many rows are of which kind.
        shared: how many of those carried are text that both vocabularies have as a token.
    """

    relation: Relation
    sources: Sequence[Sequence[int]]
    old_size: int
    carried: int
    from_pieces: int
    from_mean: int
    shared: int

    def table_size(self, old_rows: int) -> int:
        """Rows of the new tables: a padded table stays as it is where the tokens fit into it."""
        if self.relation == "other":
            return len(self.sources)
        return max(old_rows, len(self.sources))

    def apply(self, table: Tensor) -> Tensor:
        """The new table, [new rows, C], of the old one [old rows, C]; float32."""
        old = table.float()
        if self.relation == "same" and not self.from_mean:
            return old.clone()
        new = old.new_empty(self.table_size(len(old)), old.shape[1])
        kept = min(len(old), len(new))
        new[:kept] = old[:kept]
        mean = old[: self.old_size].mean(0)
        whole = [i for i, pieces in enumerate(self.sources) if len(pieces) == 1]
        new[whole] = old[[self.sources[i][0] for i in whole]]
        for token_id, pieces in enumerate(self.sources):
            if len(pieces) != 1:
                new[token_id] = old[list(pieces)].mean(0) if pieces else mean
        return new

    def renewed(self, ids: Collection[int]) -> TokenRows:
        """The same, but these tokens begin as the mean of all rows, whatever rows they have: they
        hold what they were drawn with, as nothing that was learned has them."""
        sources = [() if i in ids else pieces for i, pieces in enumerate(self.sources)]
        kept = [i for i in ids if len(self.sources[i]) == 1]
        pieces = [i for i in ids if len(self.sources[i]) > 1]
        return replace(
            self,
            sources=sources,
            carried=self.carried - len(kept),
            from_pieces=self.from_pieces - len(pieces),
            from_mean=self.from_mean + len(kept) + len(pieces),
        )

    @property
    def untrained(self) -> list[int]:
        """The tokens of which nothing was learned before, but for those of another vocabulary."""
        return [i for i, old in enumerate(self.sources) if i >= self.old_size or not old]

    def describe(self) -> str:
        """One line on what becomes of the tokens."""
        if self.relation == "same":
            words = "the data's tokenizer is the model's"
            if self.from_mean:
                words += f"; {self.from_mean:,} control tokens that no text had begin as the mean"
            return words
        kind = "extends the model's" if self.relation == "extended" else "is not the model's"
        return (
            f"the data's tokenizer {kind}: of {len(self.sources):,} tokens {self.carried:,} keep "
            f"their row, {self.from_pieces:,} begin as the mean of their pieces, "
            f"{self.from_mean:,} as the mean of all"
        )


def relate(old: Tokenizer, new: Tokenizer) -> Relation:
    """Whether `new` is `old`, extends it, or is another vocabulary, judged by ids and tokens.

    How they cut text does not matter to the tables.
    """
    if old.fingerprint == new.fingerprint:
        return "same"
    before, after = _spellings(old), _spellings(new)
    if before == after:
        return "same"
    return "extended" if before == after[: len(before)] else "other"


def plan_rows(old: Tokenizer, new: Tokenizer) -> TokenRows:
    """Find for every token of `new` the rows of `old` that it begins with."""
    relation = relate(old, new)
    if relation == "same":
        size = old.vocab_size
        return TokenRows(relation, [(i,) for i in range(size)], size, size, 0, 0, size)
    carried = _carried(old, new, relation)
    pieces = _pieces(old, new, [i for i in range(new.vocab_size) if i not in carried])
    return TokenRows(
        relation,
        [carried.get(i) or pieces.get(i, ()) for i in range(new.vocab_size)],
        old.vocab_size,
        len(carried),
        len(pieces),
        new.vocab_size - len(carried) - len(pieces),
        sum(1 for i in carried if new.token_bytes(i)),
    )


def _spellings(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each token, and the names of control tokens; b"" for ids without a token."""
    size = tokenizer.vocab_size
    return [tokenizer.shown_bytes(i, skip_special_tokens=False) for i in range(size)]


def _carried(old: Tokenizer, new: Tokenizer, relation: Relation) -> dict[int, tuple[int]]:
    """Old ids of the new tokens that both have, by spelling or by role (the end stays the end)."""
    if relation == "extended":
        return {i: (i,) for i in range(old.vocab_size)}
    places: dict[bytes, list[int]] = defaultdict(list)
    for token_id, spelling in enumerate(_spellings(old)):
        places[spelling].append(token_id)
    twins: dict[bytes, list[int]] = defaultdict(list)
    for token_id, spelling in enumerate(_spellings(new)):
        twins[spelling].append(token_id)
    carried: dict[int, tuple[int]] = {}
    for spelling, new_ids in twins.items():
        old_ids = places.get(spelling, [])
        if not spelling or not old_ids:
            continue
        # A byte and the letter that is this byte are spelled alike. Where only one side has both,
        # the later one counts: bytes come first in such vocabularies, and hardly occur in text.
        paired = old_ids if len(old_ids) == len(new_ids) else [old_ids[-1]] * len(new_ids)
        carried.update((i, (source,)) for i, source in zip(new_ids, paired, strict=True))
    for role in ("eos_token_id", "bos_token_id", "pad_token_id"):
        before, after = getattr(old, role), getattr(new, role)
        if before is not None and after is not None and after not in carried:
            carried[after] = (before,)
    return carried


def _pieces(old: Tokenizer, new: Tokenizer, ids: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """The old ids that spell each of these new tokens; what cannot be spelled is left out."""
    spelled = {i: new.token_bytes(i) for i in ids if new.token_bytes(i)}
    segments = _Segments(old)
    found = {i: segments.of(data) for i, data in spelled.items()}
    return {i: pieces for i, pieces in found.items() if pieces}


class _Segments:
    """What a tokenizer cuts bytes into, also such as are no text of their own."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[bytes, int] = {}
        for token_id in range(tokenizer.vocab_size):
            data = tokenizer.token_bytes(token_id)
            if data:
                self._ids[data] = token_id
        self._longest = max(map(len, self._ids), default=0)

    def of(self, data: bytes) -> tuple[int, ...]:
        """The ids whose bytes are `data`; () where there are none."""
        try:
            ids = self._tokenizer.encode(data.decode("utf-8"))
        except (UnicodeDecodeError, LlamitaError):
            return self._greedy(data)
        if self._tokenizer.strips_leading_space and ids and not self._joined(ids[:1]).strip(b" "):
            # The space that the tokenizer itself put in front is no part of the token.
            ids = ids if self._joined(ids) == data else ids[1:]
        return tuple(ids) if ids and self._joined(ids) == data else self._greedy(data)

    def _joined(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self._tokenizer.token_bytes, ids))

    def _greedy(self, data: bytes) -> tuple[int, ...]:
        """The longest token from each place on."""
        ids: list[int] = []
        at = 0
        while at < len(data):
            ends = range(min(len(data), at + self._longest), at, -1)
            end = next((end for end in ends if data[at:end] in self._ids), None)
            if end is None:
                return ()
            ids.append(self._ids[data[at:end]])
            at = end
        return tuple(ids)

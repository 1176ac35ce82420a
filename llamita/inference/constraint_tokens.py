"""A vocabulary as constrained decoding sees it: the bytes of each token, and what they can write.

Only bytes count, so every kind of tokenizer works the same. The end of a text is a token of its own
here, one beyond the vocabulary, whatever stop tokens a request has.

A vocabulary need not be able to write every character: one of single characters knows those of its
training text, and a byte-level one may lack bytes it never saw. `Alphabet` is what it can write one
character at a time. A token that could only be followed by characters outside it is left out, so
that no text runs into a dead end inside a word.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from llamita.errors import GenerationError
from llamita.inference.sampling import Mask
from llamita.tokenizer.base import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_CONTINUATION = frozenset(range(0x80, 0xC0))
_SURROGATES = (0xD800, 0xDFFF)
_LAST = 0x10FFFF
_LONGEST_TOKEN = 1000  # bytes; llguidance takes no more than 1023


class Alphabet:
    """The characters that the tokens can write, and go on from after each."""

    def __init__(self, tokens: Iterable[bytes]) -> None:
        given = set(tokens)
        single = {token[0] for token in given if len(token) == 1}
        # Parts of characters are of use only where any of them can be brought to an end.
        if not _CONTINUATION.issubset(single):
            single = {byte for byte in single if byte < 0x80}
        self._bytes = bytes(sorted(single))
        self._ranges = _merged(
            [*map(_written_by, single), *((ord(c), ord(c)) for c in map(_character, given) if c)]
        )
        self._starts = [start for start, _ in self._ranges]

    @property
    def is_complete(self) -> bool:
        """Whether it holds every character of Unicode."""
        return self._ranges == [(0, _SURROGATES[0] - 1), (_SURROGATES[1] + 1, _LAST)]

    def missing(self, text: str) -> str | None:
        """The first character of `text` that cannot be written, or None."""
        return next((character for character in text if character not in self), None)

    def __contains__(self, character: str) -> bool:
        place = bisect_right(self._starts, ord(character)) - 1
        return place >= 0 and ord(character) <= self._ranges[place][1]

    def spells(self, token: bytes) -> bool:
        """Whether a token is made of its characters, or of bytes that can be brought to an end."""
        if not token.translate(None, self._bytes):
            return True
        try:
            return self.missing(token.decode()) is None
        except UnicodeDecodeError:
            return False

    def character_class(self) -> str:
        """A regular expression, in Rust's syntax, of its characters."""
        parts = (rf"\x{{{start:X}}}-\x{{{end:X}}}" for start, end in self._ranges)
        return f"[{''.join(parts)}]" if self._ranges else r"[^\s\S]"


class TokenTable:
    """The tokens of a vocabulary for llguidance; `end_id` is the one that ends a text.

    words: the length of a mask in 32-bit words, with room for all ids. text: such a mask, of the
    tokens that are text; control tokens are none.
    control: control tokens by name that a grammar may name by id, and that are among `text`. With
    it all bytes stand behind `end_id`, for what no token spells alone: `ids_of` gives them.
    """

    def __init__(self, tokens: Sequence[bytes], control: Mapping[str, int] | None = None) -> None:
        self.vocab_size = self.end_id = len(tokens)
        extra = 0 if control is None else 256
        self.words = (self.end_id + extra) // 32 + 1
        self.alphabet = Alphabet(tokens)
        self.control = dict(control or {})
        self.tokens = [token if self._is_usable(token) else b"" for token in tokens]
        for name, token_id in self.control.items():
            self.tokens[token_id] = name.encode()
        self.text = self.mask_of(i for i, token in enumerate(self.tokens) if token)
        spare = [bytes([byte]) for byte in range(extra)]
        self.ll_tokenizer = _ll_tokenizer(self.tokens, list(self.control.values()), spare)

    @classmethod
    def of(cls, tokenizer: Tokenizer, control: Sequence[str] | None = None) -> TokenTable:
        """The table of a tokenizer; `control`: control tokens that a grammar may name."""
        known = tokenizer.special_tokens
        return cls(
            [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)],
            None if control is None else {name: known[name] for name in control if name in known},
        )

    def ids_of(self, data: bytes) -> list[int]:
        """Ids for llguidance that spell these bytes; no model has them."""
        return [self.end_id + 1 + byte for byte in data]

    def _is_usable(self, token: bytes) -> bool:
        return len(token) <= _LONGEST_TOKEN and self.alphabet.spells(token)

    def mask_of(self, token_ids: Iterable[int]) -> Mask:
        """A mask [words] with the bits of these tokens, without those beyond the vocabulary."""
        chosen = np.zeros(32 * self.words, dtype=bool)
        chosen[[token_id for token_id in token_ids if token_id < self.vocab_size]] = True
        return np.packbits(chosen, bitorder="little").view(np.uint32)


@cache
def byte_table() -> TokenTable:
    """Every byte as a token: what a grammar wants, whoever may write it."""
    return TokenTable([bytes([byte]) for byte in range(256)])


def load_llguidance() -> Any:
    """The library, which is loaded when it is first needed."""
    try:
        import llguidance
        import llguidance.numpy
    except ImportError as error:
        raise GenerationError(
            "schema, regex, grammar and choices need the package llguidance, which is not "
            "installed.",
            hint="pip install llguidance",
        ) from error
    return llguidance


class _Wrapper:
    """What `LLTokenizer` reads. It is not asked to encode: any spelling of a text is allowed."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(
        self, tokens: Sequence[bytes], control: Sequence[int], spare: Sequence[bytes]
    ) -> None:
        self.eos_token_id = len(tokens)
        # A name, or it would be the beginning of every control token's.
        self.tokens = [*tokens, b"end", *spare]
        self.special_token_ids = [*control, self.eos_token_id]

    def __call__(self, text: str) -> list[int]:
        return []


def _ll_tokenizer(
    tokens: Sequence[bytes], control: Sequence[int], spare: Sequence[bytes]
) -> LLTokenizer:
    made: LLTokenizer = load_llguidance().LLTokenizer(_Wrapper(tokens, control, spare))
    return made


def _character(token: bytes) -> str | None:
    """The character that a token is, where it is one outside ASCII."""
    if not 2 <= len(token) <= 4:
        return None
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) == 1 else None


def _written_by(byte: int) -> tuple[int, int]:
    """The characters whose UTF-8 begins with a byte; an empty range where none does."""
    if byte < 0x80:
        return byte, byte
    for first, last, bits, length in (
        (0xC0, 0xDF, 0x1F, 2),
        (0xE0, 0xEF, 0x0F, 3),
        (0xF0, 0xF4, 0x07, 4),
    ):
        if first <= byte <= last:
            shift = 6 * (length - 1)
            start = (byte & bits) << shift
            smallest = {2: 0x80, 3: 0x800, 4: 0x10000}[length]
            return max(start, smallest), min(start + (1 << shift) - 1, _LAST)
    return 1, 0


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of code points in order, joined where they touch, without the surrogates."""
    whole: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        for low, high in (
            (start, min(end, _SURROGATES[0] - 1)),
            (max(start, _SURROGATES[1] + 1), end),
        ):
            if low > high:
                continue
            if whole and low <= whole[-1][1] + 1:
                whole[-1] = (whole[-1][0], max(whole[-1][1], high))
            else:
                whole.append((low, high))
    return whole

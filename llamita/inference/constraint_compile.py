"""Grammars to matchers of llguidance, within limits, and its errors in plain words."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from llamita.errors import GenerationError
from llamita.inference.constraint_tokens import (
    Alphabet,
    TokenTable,
    byte_table,
    load_llguidance,
)
from llamita.inference.sampling import Mask

if TYPE_CHECKING:
    from llguidance import LLMatcher

_STATES = 25_000  # of the lexer, which all texts of a grammar share: 0.3 to 2 KB each
_STEPS = 300  # characters on the way to one that cannot be written
_LOOKS = 1000  # and those tried beside the way: about 50 ms, in which a whole batch waits
_HINTS = {
    "schema": "Supported is what https://github.com/guidance-ai/llguidance/blob/main/docs/"
    "json_schema.md lists.",
    "regex": "The syntax is that of https://docs.rs/regex, without look-around, word boundaries "
    "and back-references, and with \\d, \\w and \\s in ASCII; the whole text has to match.",
    "grammar": "The notation is described in https://github.com/guidance-ai/llguidance/blob/main/"
    "docs/syntax.md.",
    "choices": None,
    "tools": None,
}


def new_matcher(kind: str, grammar: str, table: TokenTable) -> LLMatcher:
    """A matcher at the beginning of the text. `kind` is the name of the setting.

    Raises:
        GenerationError: the grammar is wrong or too large.
    """
    library = load_llguidance()
    limits = library.LLParserLimits(max_lexer_states=_STATES, verbose_errors=False)
    matcher: LLMatcher = library.LLMatcher(table.ll_tokenizer, grammar, log_level=0, limits=limits)
    if matcher.is_error():
        raise grammar_error(kind, matcher)
    return matcher


def next_mask(matcher: LLMatcher, table: TokenTable) -> Mask | None:
    """The tokens that may come next, the end of the text among them; None: the matcher failed."""
    mask = np.empty((1, table.words), dtype=np.int32)
    load_llguidance().numpy.fill_next_token_bitmask(matcher, mask)
    return None if matcher.is_error() else mask[0].view(np.uint32)


def grammar_error(kind: str, matcher: LLMatcher) -> GenerationError:
    """Why the matcher failed, in llguidance's words."""
    if "coerce_one_of" in matcher.get_error():  # an option that nobody has here
        return GenerationError(
            f"{kind} has a oneOf of which more than one part may fit, which cannot be enforced.",
            hint="Write anyOf, or make the parts differ in a required property or in their type.",
        )
    return GenerationError(
        f"{kind} cannot be used: {_reason(matcher.get_error())}.", hint=_HINTS[kind]
    )


def is_stuck(matcher: LLMatcher) -> bool:
    """Whether a failed matcher failed because no token could come next."""
    return matcher.get_error().startswith("NoExtension")


def wanted_character(kind: str, grammar: str, written: bytes, alphabet: Alphabet) -> str | None:
    """A character outside the alphabet that the grammar wants, some way after what is written.

    The one without which nothing goes on, if the way leads there; else one that is passed. None
    also where the search gets too long.
    """
    if alphabet.is_complete:
        return None
    matcher = new_matcher(kind, grammar, byte_table())
    if not matcher.consume_tokens(list(written)):
        return None
    begun = unfinished(written)
    passed: str | None = None
    looks = 0
    for _ in range(_STEPS):
        following = list(islice(_next_characters(matcher, begun), _LOOKS - looks))
        looks += len(following)
        able = [character for character in following if character in alphabet]
        lacking = [character for character in following if character not in alphabet]
        if not able:
            return lacking[0] if lacking else passed
        passed = passed or (lacking[0] if lacking else None)
        matcher.consume_tokens(list(able[0].encode()[len(begun) :]))
        begun = b""
    return passed


def _next_characters(matcher: LLMatcher, begun: bytes) -> Iterator[str]:
    """One character for each byte that may come next; `begun` is what there is of the first."""
    for first in _next_bytes(matcher):
        branch = matcher.deep_copy()
        branch.consume_token(first)
        data = begun + bytes([first])
        while unfinished(data) and (following := _next_bytes(branch)):
            branch.consume_token(following[0])
            data += bytes(following[:1])
        if not unfinished(data):
            yield data.decode()


def _next_bytes(matcher: LLMatcher) -> list[int]:
    mask = next_mask(matcher, byte_table())
    if mask is None:
        return []
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return [int(byte) for byte in np.flatnonzero(bits[:256])]


def unfinished(data: bytes) -> bytes:
    """The bytes at the end that are the beginning of a character."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    decoder.decode(data)
    return decoder.getstate()[0]


def _reason(message: str) -> str:
    """One line of a message that shows the grammar and points into it."""
    if message.startswith("panic"):
        return "llguidance fails on it"
    named = re.search(r"^error: (.*)$", message, re.MULTILINE)
    if named:  # of the library for regular expressions
        return named[1]
    line = message.partition("\n")[0].rpartition("(in regex): ")[2]
    return line.partition(" in regex /")[0].rstrip(".")

r"""Constrained decoding: only tokens that keep the text inside a grammar may be drawn.

llguidance does the parsing. A text that finishes with "stop" is whole: JSON that parses and fits
its schema, a full match of the regular expression, a sentence of the grammar, one of the choices.
One that finishes with "length" is the beginning of such a text.

A stop token may be drawn exactly where the text may end. Where nothing can follow, the text ends of
itself, also in a model without stop tokens; but where it may end or go on (the regular expression
`\d+`), only a stop token ends it, and without one it goes on for as long as it can. What is shown
counts: a space that a tokenizer puts in front of a document and takes away again is no part of it.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from llamita.errors import GenerationError
from llamita.inference.constraint_compile import (
    grammar_error,
    is_stuck,
    new_matcher,
    next_mask,
    unfinished,
    wanted_character,
)
from llamita.inference.constraint_grammars import cannot_write, write_grammar
from llamita.inference.constraint_tokens import TokenTable, byte_table
from llamita.inference.params import SamplingParams
from llamita.inference.sampling import Mask
from llamita.tokenizer.base import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher

_KEPT = 16  # grammars of a tokenizer; with all states that each may have, below 1 GB

_lock = threading.Lock()


class TokenMatcher(Protocol):
    """How far one text has come, and what may follow."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow: the text ends here without a stop token."""

    def mask(self) -> Mask | None:
        """The tokens that may come next, [ceil(V / 32)]; None: all."""

    def accept(self, token_id: int) -> None:
        """Go on by a token that `mask` allowed."""


class TokenConstraint(Protocol):
    """What the texts of a request may be."""

    def start(self, prompt: Sequence[int]) -> TokenMatcher:
        """A matcher for the text that follows a prompt."""


@dataclass(frozen=True)
class CompiledGrammar:
    """A grammar in its beginning, for a vocabulary; `text` is llguidance's.

    Copies of the matcher share the states of its lexer, so their limit is one for all texts.
    """

    kind: str
    text: str
    matcher: LLMatcher


class _Compiler:
    """The grammars that were compiled for a tokenizer, the newest `_KEPT` of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.table = TokenTable.of(tokenizer)
        self._kept: OrderedDict[tuple[str, str, bool], CompiledGrammar] = OrderedDict()

    def compile(
        self, kind: str, text: str, after_space: bool, used_up: CompiledGrammar | None = None
    ) -> CompiledGrammar:
        """used_up: one whose states have reached their limit; it is not given again."""
        key = (kind, text, after_space)
        kept = self._kept.get(key)
        if kept is None or kept is used_up:
            self._kept[key] = self._compile(*key)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _compile(self, kind: str, text: str, after_space: bool) -> CompiledGrammar:
        table = self.table
        grammar = write_grammar(kind, text, table.alphabet, after_space=after_space)
        matcher = new_matcher(kind, grammar, table)
        begun = matcher.deep_copy()
        if kind == "schema" and " " in table.alphabet:
            begun.consume_token(table.tokens.index(b" "))  # it may come first: it proves nothing
        mask = next_mask(begun, table)
        if mask is None and not is_stuck(begun):
            raise grammar_error(kind, begun)
        if mask is None:
            free = write_grammar(kind, text, byte_table().alphabet, after_space=after_space)
            character = wanted_character(kind, free, b"", table.alphabet)
            if character is not None:
                raise cannot_write(kind, character)
        if mask is None or not (mask & table.text).any():
            raise GenerationError(
                f"{kind} allows no text at all.", hint="Give one that some text, not empty, fits."
            )
        return CompiledGrammar(kind, grammar, matcher)


_compilers: WeakKeyDictionary[Tokenizer, _Compiler] = WeakKeyDictionary()


class Matcher:
    """How far one text has come in its grammar."""

    def __init__(
        self,
        compiled: CompiledGrammar,
        compile_anew: Callable[[CompiledGrammar], CompiledGrammar],
        table: TokenTable,
        stop_token_ids: frozenset[int],
    ) -> None:
        self._compiled = compiled
        self._compile_anew = compile_anew
        self._matcher = compiled.matcher.deep_copy()
        self._table = table
        self._stop_token_ids = stop_token_ids
        self._stops = table.mask_of(stop_token_ids)
        self._texts = table.text & ~self._stops
        self._written: list[int] = []
        self._next: Mask | None = None
        self._goes_on = True
        self._stopped = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow: the text ends here without a stop token."""
        if not self._stopped:
            self.mask()
        return self._stopped or not self._goes_on

    def mask(self) -> Mask:
        """The tokens that may come next, [ceil(V / 32)], V the tokenizer's vocabulary.

        The stop tokens are among them exactly where the text may end; alone when `is_complete`.

        Raises:
            GenerationError: no token may, or the grammar has become too complex.
        """
        if self._next is None:
            self._next = self._look()
        return self._next

    def accept(self, token_id: int) -> None:
        """Go on by a token that `mask` allowed.

        Raises:
            GenerationError: the grammar has become too complex.
        """
        if token_id in self._stop_token_ids:
            self._stopped = True
            return
        self._written.append(token_id)
        if not self._matcher.consume_token(token_id):
            self._begin_anew()
        self._next = None

    def _look(self) -> Mask:
        table = self._table
        mask = next_mask(self._matcher, table)
        if mask is None and not is_stuck(self._matcher):
            self._begin_anew()
            mask = next_mask(self._matcher, table)
            if mask is None and not is_stuck(self._matcher):
                raise grammar_error(self._compiled.kind, self._matcher)
        may_end = False
        if mask is not None:
            may_end = bool(mask[table.end_id // 32] >> (table.end_id % 32) & 1)
            mask &= self._texts
        self._goes_on = mask is not None and bool(mask.any())
        if mask is None or not (self._goes_on or may_end):
            raise self._dead_end()
        if may_end:
            mask |= self._stops
        return mask[: -(-table.vocab_size // 32)]

    def _begin_anew(self) -> None:
        """Compile the grammar again and read what is written: other texts may have used it up."""
        self._compiled = self._compile_anew(self._compiled)
        self._matcher = self._compiled.matcher.deep_copy()
        if not self._matcher.consume_tokens(self._written):
            raise grammar_error(self._compiled.kind, self._matcher)

    def _dead_end(self) -> GenerationError:
        tokens = self._table.tokens
        written = b"".join(tokens[i] for i in self._written if i < len(tokens))
        kind, text = self._compiled.kind, self._compiled.text
        # Control tokens that a grammar names are known to its own table alone.
        if not self._table.control:
            character = wanted_character(kind, text, written, self._table.alphabet)
            if character is not None:
                return cannot_write(kind, character)
        return GenerationError(
            f"after {written.decode(errors='replace')!r} no token fits {kind}.",
            hint="A token that must be text cannot be a stop token.",
        )


class Constraint:
    """A grammar for the vocabulary of a tokenizer, and the tokens that may end its texts."""

    def __init__(
        self, kind: str, text: str, tokenizer: Tokenizer, stop_token_ids: Collection[int]
    ) -> None:
        self._kind = kind
        self._text = text
        self._tokenizer = tokenizer
        self._stop_token_ids = frozenset(stop_token_ids)
        with _lock:
            if tokenizer not in _compilers:
                _compilers[tokenizer] = _Compiler(tokenizer)
            self._compiler = _compilers[tokenizer]
        self._compile(after_space=False)

    def start(self, prompt: Sequence[int]) -> Matcher:
        """A matcher for the text that follows the prompt (token ids, as the row has them).

        Raises:
            GenerationError: the prompt ends in the middle of a character.
        """
        shown = b""
        for token_id in reversed(prompt):
            if len(shown) >= 3:
                break
            shown = self._tokenizer.token_bytes(token_id) + shown
        if unfinished(shown):
            raise GenerationError(
                f"the prompt ends in the middle of a character, so no text after it can fit "
                f"{self._kind}.",
                hint="End the prompt with a whole character.",
            )
        # Where nothing has been shown, a space at the beginning will not be.
        hides_space = not shown and self._tokenizer.strips_leading_space
        table = self._compiler.table
        after_space = hides_space and " " in table.alphabet
        compile_anew = partial(self._compile, after_space)
        return Matcher(self._compile(after_space), compile_anew, table, self._stop_token_ids)

    def _compile(
        self, after_space: bool, used_up: CompiledGrammar | None = None
    ) -> CompiledGrammar:
        with _lock:
            return self._compiler.compile(self._kind, self._text, after_space, used_up)


def compile_constraint(
    params: SamplingParams, tokenizer: Tokenizer | None, stop_token_ids: Collection[int]
) -> Constraint | None:
    """The constraint that `schema`, `regex`, `grammar` or `choices` of the settings ask for.

    Cheap when asked again for the same tokenizer and the same grammar. stop_token_ids: the tokens
    that end a text; they may be none.

    Raises:
        GenerationError: a bad grammar, one the vocabulary cannot write, or no tokenizer.
    """
    if params.constraint is None:
        return None
    kind, value = params.constraint
    if tokenizer is None:
        raise GenerationError(
            f"{kind} is given, but this model has no tokenizer to write text with.",
            hint="Name its tokenizer (--tokenizer PATH, tokenizer= of load).",
        )
    if params.stop:
        raise GenerationError(
            f"stop is {params.stop!r}: it could cut the text that {kind} asks for.",
            hint="Leave out one of them.",
        )
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Constraint(kind, text, tokenizer, stop_token_ids)

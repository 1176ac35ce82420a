"""Constrained tool calls: free text until a call begins, from there valid calls, nothing else.

What begins a call is seen in the text (`call_signs`); from that byte on a grammar of the calls,
with the schemas of the tools, decides as any other constraint does. Before it every token may be
drawn, but for those that would begin a call and go on as none, so that an answer without calls is
what it would be without the constraint.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from llamita.errors import GenerationError
from llamita.inference.call_signs import Call, CallSigns, State
from llamita.inference.constraint_compile import new_matcher
from llamita.inference.constraint_tokens import TokenTable
from llamita.inference.constraint_tool_grammar import unenforced, write_tool_grammar
from llamita.inference.constraints import CompiledGrammar, Matcher
from llamita.inference.sampling import Mask
from llamita.inference.tool_rules import ToolRules
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat_tools import CALL_SIGNS, CALL_TAGS

_KEPT = 16  # sets of tools for a tokenizer

_lock = threading.Lock()


class _Compiled:
    """The calls of one set of rules, for a vocabulary."""

    def __init__(self, rules: ToolRules, table: TokenTable) -> None:
        self._table = table
        tools = json.loads(rules.tools)
        self._grammar = self._write(rules, tools)
        try:
            self.compiled = self.compile()
        except GenerationError as error:
            raise self._named(rules, tools) or error from error
        self.masks: dict[State, Mask | None] = {}

    def compile(self, used_up: CompiledGrammar | None = None) -> CompiledGrammar:
        """used_up: one whose states have reached their limit; it is not given again."""
        if used_up is None or self.compiled is used_up:
            matcher = new_matcher("tools", self._grammar, self._table)
            self.compiled = CompiledGrammar("tools", self._grammar, matcher)
        return self.compiled

    def _write(self, rules: ToolRules, tools: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        return write_tool_grammar(
            tools,
            rules.syntax,
            parallel=rules.parallel,
            opened=rules.choice != "required",
            alphabet=self._table.alphabet,
            control=self._table.control,
        )

    def _named(
        self, rules: ToolRules, tools: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> GenerationError | None:
        """The error of the first tool that cannot be enforced by itself."""
        for tool in tools:
            try:
                new_matcher("tools", self._write(rules, [tool]), self._table)
            except GenerationError as error:
                return unenforced(tool[0], error)
        return None

    def fits(self, written: bytes) -> bool:
        """Whether calls may begin so."""
        ids = self._table.ids_of(written)
        matcher = self.compiled.matcher.deep_copy()
        length = matcher.validate_tokens(ids)
        if matcher.is_error():  # other texts have used it up
            length = self.compile(self.compiled).matcher.deep_copy().validate_tokens(ids)
        return length == len(ids)


class _Compiler:
    """The sets of tools that were compiled for a tokenizer, and what its tokens may begin."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.table = TokenTable.of(tokenizer, (*CALL_TAGS, *CALL_SIGNS))
        names = {token_id: name.encode() for name, token_id in self.table.control.items()}
        self.shown = [
            names.get(token_id, b"") or tokenizer.token_bytes(token_id)
            for token_id in range(tokenizer.vocab_size)
        ]
        self._kept: OrderedDict[ToolRules, _Compiled] = OrderedDict()
        self._beginnings: dict[tuple[CallSigns, State], list[tuple[int, bytes]]] = {}

    def compile(self, rules: ToolRules) -> _Compiled:
        if rules not in self._kept:
            self._kept[rules] = _Compiled(rules, self.table)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(rules)
        return self._kept[rules]

    def beginnings(self, signs: CallSigns, state: State) -> list[tuple[int, bytes]]:
        """The tokens that begin a call after a text in this state, and what each writes of it."""
        key = signs, state
        if key not in self._beginnings:
            last = signs.last_bytes
            found = []
            for token_id, data in enumerate(self.shown):
                # Most hold none of these bytes, and this is the quickest way to see it.
                if len(data.translate(None, last)) == len(data):
                    continue
                after = signs.read(state, data)
                if isinstance(after, Call):
                    found.append((token_id, after.written))
            self._beginnings[key] = found
        return self._beginnings[key]


_compilers: WeakKeyDictionary[Tokenizer, _Compiler] = WeakKeyDictionary()


class ToolConstraint:
    """Tool rules for the vocabulary of a tokenizer, and the tokens that may end its texts.

    Raises GenerationError for a schema that cannot be enforced, or that cannot be written.
    """

    def __init__(
        self, rules: ToolRules, tokenizer: Tokenizer, stop_token_ids: Collection[int]
    ) -> None:
        self.rules = rules
        # Ids beyond the tokenizer's are never drawn, and stand for bytes here.
        size = tokenizer.vocab_size
        self.stop_token_ids = frozenset(i for i in stop_token_ids if i < size)
        with _lock:
            if tokenizer not in _compilers:
                _compilers[tokenizer] = _Compiler(tokenizer)
            self._compiler = _compilers[tokenizer]
            self._compiled = None if rules.choice == "none" else self._compiler.compile(rules)
        self._masks: dict[State, Mask | None] = {}

    @property
    def signs(self) -> CallSigns:
        """What begins a call."""
        return self.rules.signs

    def start(self, prompt: Sequence[int]) -> ToolMatcher:
        """A matcher for the answer to a prompt."""
        return ToolMatcher(self)

    def shown(self, token_id: int) -> bytes:
        """What a token adds to the text in which calls are looked for."""
        table = self._compiler.shown
        return table[token_id] if token_id < len(table) else b""

    def calls(self, written: bytes = b"") -> Matcher:
        """A matcher of the calls, of which so much is written."""
        assert self._compiled is not None
        with _lock:
            compiled = self._compiled.compiled
        matcher = Matcher(compiled, self._compile_anew, self._compiler.table, self.stop_token_ids)
        for token_id in self._compiler.table.ids_of(written):
            matcher.accept(token_id)
        return matcher

    def free_mask(self, state: State) -> Mask | None:
        """The tokens that may follow text without a call, in a state of `signs`; None: all."""
        with _lock:
            masks = self._masks if self._compiled is None else self._compiled.masks
            if state not in masks:
                beginnings = self._compiler.beginnings(self.signs, state)
                wrong = [
                    token_id
                    for token_id, written in beginnings
                    if self._compiled is None or not self._compiled.fits(written)
                ]
                masks[state] = self._without(wrong)
            return masks[state]

    def _compile_anew(self, used_up: CompiledGrammar) -> CompiledGrammar:
        assert self._compiled is not None
        with _lock:
            return self._compiled.compile(used_up)

    def _without(self, token_ids: Sequence[int]) -> Mask | None:
        if not token_ids:
            return None
        size = self._compiler.table.vocab_size
        bits = np.ones(32 * -(-size // 32), dtype=bool)
        bits[token_ids] = False
        return np.packbits(bits, bitorder="little").view(np.uint32)


class ToolMatcher:
    """How far one answer has come: free text, or within calls."""

    def __init__(self, constraint: ToolConstraint) -> None:
        self._constraint = constraint
        self._state = constraint.signs.start
        self._stopped = False
        self._calls: Matcher | None = None
        if constraint.rules.choice == "required":
            self._calls = constraint.calls()

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow: the text ends here without a stop token."""
        return self._stopped if self._calls is None else self._calls.is_complete

    def mask(self) -> Mask | None:
        """The tokens that may come next, [ceil(V / 32)]; None: all.

        Raises:
            GenerationError: no token may, or the grammar has become too complex.
        """
        if self._calls is not None:
            return self._calls.mask()
        return self._constraint.free_mask(self._state)

    def accept(self, token_id: int) -> None:
        """Go on by a token that `mask` allowed."""
        if self._calls is not None:
            self._calls.accept(token_id)
        elif token_id in self._constraint.stop_token_ids:
            self._stopped = True
        else:
            signs = self._constraint.signs
            after = signs.read(self._state, self._constraint.shown(token_id))
            if isinstance(after, Call):
                self._calls = self._constraint.calls(after.written)
            else:
                self._state = after

"""Where an answer begins a tool call, seen byte by byte.

In Hermes' way of writing the tag `<tool_call>` begins one, wherever it stands. Where calls are bare
objects, an answer that begins as an object, or as a list of objects, is calls; and so is what
follows a sign such as `<|python_tag|>`. Where models reason first, the answer begins behind that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from llamita.inference.stopping import Search
from llamita.tokenizer.chat_tools import CALL_SIGNS, CALL_TAGS, Syntax

_REASONED = "</think>"
_WHITE_SPACE = b" \t\r\n"  # JSON's
_BLANK, _LIST, _TEXT = range(3)  # how the answer began: not yet, with a bracket, as neither


class State(NamedTuple):
    """How far the answer is: how it began, and how much of a sign it ends with."""

    begun: int
    sign: int


@dataclass(frozen=True)
class Call:
    """A call has begun. written: what of the answer, to where it was read, belongs to the calls."""

    written: bytes


class CallSigns:
    """What begins calls in one way of writing them. It has no state of a text."""

    def __init__(self, syntax: Syntax, reasons: bool) -> None:
        self._is_bare = syntax != "hermes"
        self.signs = CALL_SIGNS if self._is_bare else CALL_TAGS[:1]
        breaks = (_REASONED,) if self._is_bare and reasons else ()
        self._search = Search((*self.signs, *breaks))
        self.start = State(_BLANK if self._is_bare else _TEXT, 0)

    @property
    def last_bytes(self) -> bytes:
        """One of these completes every sign, and every beginning that is one."""
        ends = {sign[-1] for sign in self.signs} | ({"{"} if self._is_bare else set())
        return "".join(sorted(ends)).encode()

    def read(self, state: State, data: bytes) -> State | Call:
        """Read more of an answer; `Call` where it begins calls within `data`."""
        begun, sign = state
        for place, byte in enumerate(data):
            sign = self._search.step(sign, chr(byte))
            found = self._search.found[sign]
            if found == _REASONED:
                begun, sign = _BLANK, 0
            elif found is not None:
                return Call(data[place + 1 :])
            elif begun != _TEXT:
                if byte == ord("{"):
                    opening = b"[" if begun == _LIST else b""
                    return Call(opening + data[place:])
                if byte == ord("[") and begun == _BLANK:
                    begun = _LIST
                elif byte not in _WHITE_SPACE:
                    begun = _TEXT
        return State(begun, sign)

    def held(self, state: State) -> int | None:
        """How many bytes at the end may come to belong to a call; None: all that there are."""
        return self._search.depth[state.sign] if state.begun == _TEXT else None


@lru_cache(maxsize=8)
def call_signs(syntax: Syntax, reasons: bool = False) -> CallSigns:
    """Those of a way of writing calls. reasons: whether reasoning may stand before an answer."""
    return CallSigns(syntax, reasons)

"""Says when a text is over: stop tokens, stop strings, max_tokens, the end of the context.

`StopStrings` reads text in pieces of any size and shows all of it but what may yet turn out to
be the beginning of a stop string. How the text was cut into pieces makes no difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from llamita.config import ModelConfig
from llamita.errors import GenerationError
from llamita.inference.params import SamplingParams

FinishReason = Literal["stop", "length"]
"""stop: a stop token or stop string; length: max_tokens reached or the context full."""


def context_length(config: ModelConfig) -> int:
    """How many tokens a model can read: `max_position_embeddings`.

    Dynamic scaling alone begins there, and stretches it by its factor.
    """
    if config.rope_type == "dynamic" and config.rope_scaling is not None:
        return int(config.max_position_embeddings * float(config.rope_scaling["factor"]))
    return config.max_position_embeddings


def token_limit(prompt_tokens: int, params: SamplingParams, context: int) -> int:
    """How many tokens may follow the prompt.

    Prompt and output share the context, unless it slides. A prompt that fills it leaves room for
    none: its generation ends at once with "length".

    Raises:
        GenerationError: the prompt is longer than the context, or what `overflow` rules out.
    """
    if params.overflow == "slide":
        if params.max_tokens is None:
            raise GenerationError(
                'overflow is "slide" and max_tokens None: such a text need not end.',
                hint="Give max_tokens.",
            )
        return params.max_tokens
    room = context - prompt_tokens
    if room < 0:
        raise GenerationError(
            f"the prompt has {prompt_tokens} tokens; the model's context holds {context}.",
            hint="Shorten it, or choose the overflow 'slide', which drops the oldest tokens.",
        )
    asked = room if params.max_tokens is None else params.max_tokens
    must_fit = params.overflow == "error"
    if must_fit and (asked > room or (params.max_tokens is None and room == 0)):
        raise GenerationError(
            f"the prompt has {prompt_tokens} tokens and max_tokens is {params.max_tokens}; the "
            f"model's context holds {context}.",
            hint="Shorten one of them, or choose another overflow than 'error'.",
        )
    return min(asked, room)


class StopStrings:
    """Finds the first of several stop strings in a text that comes in pieces.

    The first is the one complete first; of several complete at the same character, the longest.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._search = _search(tuple(stop))
        self._state = 0
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str) -> str:
        """Add a piece; gives the text that is now certain to stand before any stop string.

        After a match (`matched` is set) nothing more is shown.
        """
        if self.matched is not None:
            return ""
        if not self._search.found:
            return piece
        text = self._held + piece
        for place, character in enumerate(piece, start=len(self._held) + 1):
            self._state = self._search.step(self._state, character)
            self.matched = self._search.found[self._state]
            if self.matched is not None:
                self._held = ""
                return text[: place - len(self.matched)]
        certain = len(text) - self._search.depth[self._state]
        self._held = text[certain:]
        return text[:certain]

    def finish(self) -> str:
        """The text still held back: it is over, and no stop string came of it."""
        held, self._held = self._held, ""
        return held


class Search:
    """All of several strings looked for at once, at a cost by character that they do not change.

    The automaton of Aho and Corasick (1975). A state is the longest end of the text that begins one
    of the strings; state 0 is the empty end. depth: its length. found: the longest of the strings
    that the text ends with.
    """

    def __init__(self, strings: tuple[str, ...]) -> None:
        self._next: list[dict[str, int]] = []
        self._shorter: list[int] = []  # the state of the longest end of a state's own
        self.depth: list[int] = []
        self.found: list[str | None] = []
        if not strings:
            return
        self._new_state(0)
        for string in strings:
            state = 0
            for character in string:
                if character not in self._next[state]:
                    self._next[state][character] = self._new_state(self.depth[state] + 1)
                state = self._next[state][character]
            self.found[state] = string
        self._link()

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        while state and character not in self._next[state]:
            state = self._shorter[state]
        return self._next[state].get(character, 0)

    def _new_state(self, depth: int) -> int:
        self._next.append({})
        self._shorter.append(0)
        self.depth.append(depth)
        self.found.append(None)
        return len(self.depth) - 1

    def _link(self) -> None:
        """Fill `_shorter`, and `found` by what a shorter end is, from the shortest states on."""
        waiting = deque(self._next[0].values())
        while waiting:
            state = waiting.popleft()
            for character, longer in self._next[state].items():
                self._shorter[longer] = self.step(self._shorter[state], character)
                if self.found[longer] is None:
                    self.found[longer] = self.found[self._shorter[longer]]
                waiting.append(longer)


@lru_cache(maxsize=64)
def _search(strings: tuple[str, ...]) -> Search:
    """Requests mostly ask for the same few strings; a search has no state of a text."""
    return Search(strings)

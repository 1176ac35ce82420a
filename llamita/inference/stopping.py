"""Says when a text is over: stop tokens, stop strings, max_tokens, the end of the context.

`StopStrings` reads text in pieces of any size and shows all of it but what may yet turn out to
be the beginning of a stop string. How the text was cut into pieces makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from llamita.config import ModelConfig
from llamita.errors import GenerationError

FinishReason = Literal["stop", "length"]
"""stop: a stop token or stop string; length: max_tokens reached or the context full."""


def context_length(config: ModelConfig) -> int:
    """How many tokens a model can read: `max_position_embeddings`.

    Dynamic scaling alone begins there, and stretches it by its factor.
    """
    if config.rope_type == "dynamic" and config.rope_scaling is not None:
        return int(config.max_position_embeddings * float(config.rope_scaling["factor"]))
    return config.max_position_embeddings


def token_limit(prompt_tokens: int, max_tokens: int | None, context: int) -> int:
    """How many tokens may follow the prompt: prompt and output share the context.

    A prompt that fills the context leaves room for none: its generation ends at once with
    "length". A longer one raises GenerationError.
    """
    room = context - prompt_tokens
    if room < 0:
        raise GenerationError(
            f"the prompt has {prompt_tokens} tokens; the model's context holds {context}.",
            hint="Shorten the prompt.",
        )
    return room if max_tokens is None else min(int(max_tokens), room)


class StopStrings:
    """Finds the first of several stop strings in a text that comes in pieces.

    The first is the one complete first; of several complete at the same character, the longest.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str) -> str:
        """Add a piece; gives the text that is now certain to stand before any stop string.

        After a match (`matched` is set) nothing more is shown.
        """
        if self.matched is not None:
            return ""
        if not self._stop:
            return piece
        text = self._held + piece
        ends = [
            (start + len(stop), start, stop)
            for stop in self._stop
            if (start := text.find(stop)) >= 0
        ]
        if ends:
            _, start, self.matched = min(ends)
            self._held = ""
            return text[:start]
        certain = len(text) - self._open_length(text)
        self._held = text[certain:]
        return text[:certain]

    def finish(self) -> str:
        """The text still held back: it is over, and no stop string came of it."""
        held, self._held = self._held, ""
        return held

    def _open_length(self, text: str) -> int:
        """Length of the longest end of `text` that is the beginning of a stop string."""
        longest = min(len(text), max(len(stop) for stop in self._stop) - 1)
        for length in range(longest, 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) for stop in self._stop):
                return length
        return 0

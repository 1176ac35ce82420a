"""One text to generate: what was asked for, and the textual half of the answer.

`Reply` turns drawn tokens into events: what is shown and when it is over. It knows nothing of
logits or slots; the engine knows nothing of text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llamita.errors import GenerationError
from llamita.inference.constraints import TokenConstraint
from llamita.inference.params import SamplingParams
from llamita.inference.sampling import TokenLogprob
from llamita.inference.stopping import FinishReason, StopStrings
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.incremental import IncrementalDetokenizer


@dataclass(frozen=True)
class Request:
    """A prompt (token ids, not empty) and how it goes on.

    row: the caller's number for it, which its events carry. stop_token_ids: what ends the text.
    constraint: what the text may be, beside what `params` ask for: an answer's tool calls.
    """

    prompt: Sequence[int]
    params: SamplingParams
    stop_token_ids: frozenset[int] = frozenset()
    row: int = 0
    constraint: TokenConstraint | None = None


@dataclass(frozen=True)
class TokenEvent:
    """One step of one row.

    token_id is None where nothing was generated: a stop token came, there was no room at all, or
    something went wrong. text is what became certain with this step, and may be empty. The row's
    last event carries a finish_reason, and the stop token or stop string that ended it as
    stop_reason; or an error. dropped is how many of the oldest tokens the row gave up to go on in a
    full context. logprob is set where log-probabilities were asked for.
    """

    row: int
    token_id: int | None
    text: str
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    logprob: TokenLogprob | None = None
    dropped: int = 0
    error: GenerationError | None = None

    @property
    def is_last(self) -> bool:
        """Whether the row is over."""
        return self.finish_reason is not None or self.error is not None


class Reply:
    """The text of one row; the event that ends it `is_last`.

    limit: at most so many tokens. Without a tokenizer the events carry no text.
    """

    def __init__(self, request: Request, limit: int, tokenizer: Tokenizer | None) -> None:
        self.row = request.row
        self.limit = limit
        self.count = 0
        self._stop_token_ids = request.stop_token_ids
        self._shows_stop_token = request.params.include_stop_token
        self._stop_strings = StopStrings(request.params.stop)
        self._detokenizer = (
            IncrementalDetokenizer(tokenizer, after=request.prompt) if tokenizer else None
        )

    def accept(
        self,
        token_id: int,
        logprob: TokenLogprob | None = None,
        *,
        dropped: int = 0,
        is_complete: bool = False,
    ) -> TokenEvent:
        """Take the row's next token; is_complete says that nothing may follow it."""
        if token_id in self._stop_token_ids:
            if not self._shows_stop_token:
                return TokenEvent(self.row, None, self._rest(), "stop", token_id, None, dropped)
            text = self._stop_strings.push(self._push(token_id)) + self._rest()
            return TokenEvent(self.row, token_id, text, "stop", token_id, logprob, dropped)
        self.count += 1
        text = self._stop_strings.push(self._push(token_id))
        reason: FinishReason | None = None
        if self._stop_strings.matched is None and (is_complete or self.count == self.limit):
            text += self._rest()
            reason = "stop" if is_complete else "length"
        if self._stop_strings.matched is not None:
            reason = "stop"
        matched = self._stop_strings.matched
        return TokenEvent(self.row, token_id, text, reason, matched, logprob, dropped)

    def _push(self, token_id: int) -> str:
        return self._detokenizer.push(token_id) if self._detokenizer else ""

    def _rest(self) -> str:
        """All that was held back, the text being over: half characters, beginnings of stops."""
        if self._detokenizer is None:
            return ""
        return self._stop_strings.push(self._detokenizer.finish()) + self._stop_strings.finish()

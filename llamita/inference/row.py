"""One row of the engine at work: its tokens, how far they are read, and how the next is drawn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from llamita.errors import GenerationError
from llamita.inference.backend import Logits, Segment
from llamita.inference.constraints import TokenConstraint, TokenMatcher
from llamita.inference.history import History
from llamita.inference.noise import NoiseStream
from llamita.inference.request import Reply, Request, TokenEvent
from llamita.inference.sampling import (
    NO_TOKEN,
    choose,
    log_probabilities,
    no_token_error,
)
from llamita.inference.speculative import PromptLookup
from llamita.tokenizer.base import Tokenizer

_logger = logging.getLogger(__name__)

Sink = Callable[[TokenEvent], None]


class Row:
    """What the engine knows of one request.

    tokens: all that the slot shall hold, the newest last; written: how many of them it holds.
    capacity: how many positions of the cache it may come to need. draft: tokens guessed to follow,
    which the next pass reads along. finished: it is over or was cancelled, and says no more.
    on_end: called when it is over.
    """

    def __init__(
        self,
        request: Request,
        *,
        limit: int,
        context: int,
        vocab_size: int,
        tokenizer: Tokenizer | None,
        constraint: TokenConstraint | None,
        sink: Sink,
    ) -> None:
        self.params = request.params
        self.context = context
        self.tokens = list(request.prompt)
        self.written = 0
        self.capacity = min(context, len(self.tokens) + limit)
        self.slot = -1
        self.draft: list[int] = []
        self.finished = False
        self.on_end: Callable[[], object] = lambda: None
        self._history = History(request.prompt, self.params, vocab_size)
        self.lookup: PromptLookup | None = None
        if self.params.speculative:
            self.lookup = PromptLookup(request.prompt, self.params.speculative)
        self._reply = Reply(request, limit, tokenizer)
        self._noise = NoiseStream(self.params.seed)
        self._matcher: TokenMatcher | None = None
        if constraint is not None:
            self._matcher = constraint.start(request.prompt)
        self._sink = sink
        self._dropped = 0
        self._fails_when_full = self.params.overflow == "error" and self.params.max_tokens is None

    @property
    def limit(self) -> int:
        """At most so many tokens are drawn."""
        return self._reply.limit

    @property
    def unread(self) -> int:
        """How many tokens are still to be read; the last one's logits give the next token."""
        return len(self.tokens) - self.written

    def segment(self, length: int) -> Segment:
        """The next `length` unread tokens as a pass; with the draft where they reach the last."""
        end = self.written + length
        is_last = end == len(self.tokens)
        draft = self.draft if is_last else []
        return Segment(
            self.slot,
            [*self.tokens[self.written : end], *draft],
            self.written,
            1 + len(draft) if is_last else 0,
            len(self.tokens),
        )

    def draft_limit(self, longest: int) -> int:
        """At most how many tokens to draft: `longest`, or what the row has room for."""
        room = min(self.context - len(self.tokens), self.limit - self._reply.count)
        return max(0, min(longest, room - 1))

    def drop_oldest(self, keep: int, keep_first: int) -> None:
        """Give up the oldest tokens so that `keep` are left, the first `keep_first` (BOS) among
        them. All that is left is to be read again, from position 0.
        """
        keep_first = min(keep_first, keep - 1)
        before = len(self.tokens)
        self.tokens = self.tokens[:keep_first] + self.tokens[before - keep + keep_first :]
        self._dropped += before - len(self.tokens)
        self.written = 0

    def draw(self, logits: Logits) -> None:
        """Draw what follows the tokens just read, to the last and the draft, and tell the sink.

        logits [1 + D, V]: those after the last token and after each drafted one. A drafted token is
        kept where it is what was drawn anyway, so a row's tokens do not depend on its drafts.
        """
        draft, self.draft = self.draft, []
        self.written = len(self.tokens)
        accepted = 0
        try:
            for place, after in enumerate(logits):
                if self.finished:  # cancelled, perhaps by its own sink
                    break
                self._draw_one(after)
                if self.finished or place == len(draft) or self.tokens[-1] != draft[place]:
                    break
                accepted += 1
        except GenerationError as error:
            self.fail(error)
        self.written = min(self.written + accepted, len(self.tokens))

    def _draw_one(self, logits: Logits) -> None:
        mask = self._matcher.mask() if self._matcher else None
        token_id = choose(logits, self.params, self._history, self._noise.next(), mask)
        if token_id == NO_TOKEN:
            raise no_token_error(logits, self.params, self._history, mask)
        logprob = None
        if self.params.logprobs is not None:
            logprob = log_probabilities(logits, token_id, self.params.logprobs)
        is_complete, dead_end = self._follow(token_id)
        event = self._reply.accept(
            token_id, logprob, dropped=self._dropped, is_complete=is_complete
        )
        if event.token_id is not None:
            self.tokens.append(token_id)
            self._history.append(token_id)
            if self.lookup:
                self.lookup.append(token_id)
        if event.finish_reason == "length" and self._fails_when_full:
            event = replace(event, finish_reason=None)
            dead_end = GenerationError(
                f"the text has filled the model's context of {self.context} tokens and has not "
                "come to its end.",
                hint="Give max_tokens, shorten the prompt, or choose another overflow.",
            )
        self._say(event)
        if dead_end is not None and not event.is_last:
            self.fail(dead_end)

    def _follow(self, token_id: int) -> tuple[bool, GenerationError | None]:
        """Move the constraint on: whether nothing may follow the token, and why nothing can."""
        if self._matcher is None:
            return False, None
        self._matcher.accept(token_id)
        try:
            return self._matcher.is_complete, None
        except GenerationError as error:
            return False, error

    def fail(self, error: GenerationError) -> None:
        """End the row with an error."""
        self._say(TokenEvent(self._reply.row, None, "", dropped=self._dropped, error=error))

    def end(self) -> None:
        """End a row that has no room for a token."""
        self._say(TokenEvent(self._reply.row, None, "", "length", dropped=self._dropped))

    def _say(self, event: TokenEvent) -> None:
        """Tell the sink, unless the row was cancelled. One that raises cancels it."""
        if self.finished:
            return
        if event.is_last:
            self.finished = True
            self.on_end()
        try:
            self._sink(event)
        except Exception:
            _logger.exception("what takes a text's tokens has failed, and the text was cancelled")
            self.finished = True
            self.on_end()

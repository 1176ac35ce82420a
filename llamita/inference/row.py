"""One row of the engine at work: its tokens, how far they are read, and how the next is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from llamita.errors import GenerationError
from llamita.inference.backend import Logits, Segment
from llamita.inference.constraints import Constraint, Matcher
from llamita.inference.params import SamplingParams
from llamita.inference.request import Reply, Request, TokenEvent
from llamita.inference.sampling import (
    NO_TOKEN,
    History,
    Mask,
    UniformStream,
    choose,
    log_probabilities,
)
from llamita.inference.speculative import PromptLookup
from llamita.tokenizer.base import Tokenizer

Sink = Callable[[TokenEvent], None]


class Row:
    """tokens: all that the slot shall hold, the newest last; written: how many of them it holds.

    draft: tokens guessed to follow, which the next pass reads along.
    """

    def __init__(
        self,
        request: Request,
        limit: int | None,
        context: int,
        vocab_size: int,
        tokenizer: Tokenizer | None,
        constraint: Constraint | None,
        sink: Sink,
    ) -> None:
        self.params = request.params
        self.context = context
        self.tokens = list(request.prompt)
        self.written = 0
        self.slot = -1
        self.draft: list[int] = []
        self.finished = False
        self.history = History(request.prompt, self.params, vocab_size)
        self.lookup: PromptLookup | None = None
        if self.params.speculative:
            self.lookup = PromptLookup(request.prompt, self.params.speculative)
        self._reply = Reply(request, limit, tokenizer)
        self._uniforms = UniformStream(self.params.seed)
        self._matcher: Matcher | None = constraint.start(request.prompt) if constraint else None
        self._sink = sink
        self._dropped = 0
        self._fails_when_full = self.params.overflow == "error" and self.params.max_tokens is None

    @property
    def capacity(self) -> int:
        """How many positions of the cache it may come to need."""
        limit = self._reply.limit
        whole = self.context if limit is None else len(self.tokens) + limit
        return min(whole, self.context)

    @property
    def limit(self) -> int | None:
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
        room = self.context - len(self.tokens)
        if self.limit is not None:
            room = min(room, self.limit - self._reply.count)
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

    def uniform(self) -> float:
        """The row's next random number of [0, 1)."""
        return self._uniforms.next()

    def allowed(self) -> Mask | None:
        """The tokens that the row's constraint lets follow, as bits; None where there is none."""
        return self._matcher.mask() if self._matcher else None

    def accept(self, token_id: int, logits: Logits) -> None:
        """Take the drawn token, and tell the sink. logits [V] are those it was drawn from."""
        if token_id == NO_TOKEN:
            raise GenerationError(
                "the model's logits are not numbers (NaN): its weights or their precision are bad.",
                hint="Try dtype float32, or another checkpoint of the run.",
            )
        logprob = None
        if self.params.logprobs is not None:
            logprob = log_probabilities(logits, token_id, self.params.logprobs)
        is_complete = False
        if self._matcher:
            self._matcher.accept(token_id)
            is_complete = self._matcher.is_complete
        event = self._reply.accept(
            token_id, logprob, dropped=self._dropped, is_complete=is_complete
        )
        if event.finish_reason == "length" and self._fails_when_full:
            self._sink(replace(event, finish_reason=None))
            self.fail(
                GenerationError(
                    f"the text has filled the model's context of {self.context} tokens and has not "
                    "come to its end.",
                    hint="Shorten the prompt, give max_tokens, or choose another overflow than "
                    "'error'.",
                )
            )
            return
        if event.token_id is not None:
            self.tokens.append(token_id)
            self.history.append(token_id)
            if self.lookup:
                self.lookup.append(token_id)
        self.finished = event.is_last
        self._sink(event)

    def fail(self, error: GenerationError) -> None:
        """End the row with an error."""
        self.finished = True
        self._sink(TokenEvent(self._reply.row, None, "", dropped=self._dropped, error=error))

    def end(self) -> None:
        """End a row that has no room for a token."""
        self.finished = True
        self._sink(TokenEvent(self._reply.row, None, "", "length"))


def draw(rows: Sequence[Row], logits: Logits) -> None:
    """Draw what follows the tokens that each of `rows` has read, to the last and the draft.

    logits [N, V]: of each row those after its last token and after each drafted one. A drafted
    token is kept where it is what was drawn anyway, so a row's tokens do not depend on its drafts.
    """
    alike: dict[SamplingParams, list[tuple[Row, Logits]]] = {}
    first = 0
    for row in rows:
        row.written = len(row.tokens)
        own = logits[first : first + 1 + len(row.draft)]
        first += len(own)
        if row.draft:
            _draw_drafted(row, own)
        else:
            alike.setdefault(row.params, []).append((row, own))
    for group in alike.values():
        _draw_together([row for row, _ in group], [own for _, own in group])


def _draw_drafted(row: Row, logits: Logits) -> None:
    draft, row.draft = row.draft, []
    accepted = 0
    for place in range(len(logits)):
        _draw_together([row], [logits[place : place + 1]])
        if row.finished or place == len(draft) or row.tokens[-1] != draft[place]:
            break
        accepted += 1
    row.written = min(row.written + accepted, len(row.tokens))
    if row.lookup:
        row.lookup.observe(len(draft), accepted)


def _draw_together(rows: list[Row], logits: list[Logits]) -> None:
    """One token for each of several rows with the same settings; logits: [1, V] of each."""
    able: list[tuple[Row, Mask | None, Logits]] = []
    for row, own in zip(rows, logits, strict=True):
        try:
            able.append((row, row.allowed(), own))
        except GenerationError as error:
            row.fail(error)
    if not able:
        return
    token_ids = choose(
        np.concatenate([own for _, _, own in able]),
        rows[0].params,
        [row.history for row, _, _ in able],
        [row.uniform() for row, _, _ in able],
        [mask for _, mask, _ in able],
    )
    for (row, _, own), token_id in zip(able, token_ids, strict=True):
        try:
            row.accept(token_id, own[0])
        except GenerationError as error:
            row.fail(error)

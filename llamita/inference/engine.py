"""Continuous batching: requests join and leave at any step, each with its own settings.

A step reads a chunk of the prompts that are not read yet, so that a long one does not stall the
texts under way, and one token (or a draft of several) of every text under way; then it draws the
next tokens. A row's tokens do not depend on the rows beside it: a query sees its own slot alone,
and each row draws its random numbers from its own seed.

    engine = Engine(TorchBackend(model), tokenizer)
    for event in engine.run([Request(prompt, params, stop_token_ids)]): ...

A server adds requests with a `sink` each and calls `step` in a loop; `add` and `cancel` may be
called from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from time import perf_counter

from llamita.errors import GenerationError
from llamita.inference.backend import Backend
from llamita.inference.constraints import compile_constraint
from llamita.inference.request import Request, TokenEvent
from llamita.inference.row import Row, Sink
from llamita.inference.slots import Slots, shared_length
from llamita.inference.speculative import StepTimes, plan
from llamita.inference.stopping import context_length, token_limit
from llamita.tokenizer.base import Tokenizer

_MAX_SLOTS = 64  # rows decoded together; more wait their turn
_CACHE_BYTES = 2 << 30
_LEAST_SLOTS = 4  # a second conversation should not cost the first its cache
_LEAST_CAPACITY = 256
_WORTH_WAITING = 32  # tokens that a neighbour is about to read, and that can then be copied


class Engine:
    """Generates for many requests at once on one backend.

    prefill_chunk: the most prompt tokens that one step reads while other texts are under way (four
    times as many when none is). max_slots, cache_bytes: how many rows are under way together, and
    what their cache may take; one row always fits. tokenizer: without one the events carry no text.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer | None = None,
        *,
        prefill_chunk: int = 128,
        max_slots: int = _MAX_SLOTS,
        cache_bytes: int = _CACHE_BYTES,
    ) -> None:
        self.backend = backend
        self.tokenizer = tokenizer
        self.context = context_length(backend.config)
        self._vocab_size = backend.config.vocab_size
        if tokenizer is not None:
            self._vocab_size = min(self._vocab_size, tokenizer.vocab_size)
        self._prefill_chunk = prefill_chunk
        self._max_slots = max_slots
        self._cache_bytes = cache_bytes
        self._lock = threading.RLock()
        self._ids = count()
        self._waiting: dict[int, Row] = {}
        self._rows: dict[int, Row] = {}
        self._slots = Slots(backend)
        # Where keys depend on the length of the row, those of a draft thrown away would remain.
        self._may_draft = backend.reusable(1, 1) == 1
        self._step_times = StepTimes()
        self._weights_version = backend.weights_version

    def add(self, request: Request, sink: Sink) -> int:
        """Take a request on; `sink` gets its events, within `step`. Gives its id for `cancel`.

        Raises:
            GenerationError: the prompt is longer than the context, what was asked for does not fit
                and `overflow` is "error", or the constraint cannot be used.
        """
        row = self._new_row(request, sink)
        with self._lock:
            request_id = next(self._ids)
            if row.limit == 0:
                row.end()
            else:
                self._waiting[request_id] = row
        return request_id

    def cancel(self, request_id: int) -> None:
        """End a request without another event and free its slot; one that is over is left so."""
        with self._lock:
            self._waiting.pop(request_id, None)
            row = self._rows.pop(request_id, None)
            if row is not None:
                self._slots.release(row.slot)

    @property
    def has_work(self) -> bool:
        """Whether any request is not over yet."""
        return bool(self._waiting or self._rows)

    def run(self, requests: Sequence[Request]) -> Iterator[TokenEvent]:
        """The events of these requests as they come, beside whatever else is under way.

        Leaving the iterator cancels what is not over.

        Raises:
            GenerationError: as for `add`, or of a row that went wrong.
        """
        events: deque[TokenEvent] = deque()
        open_ids = {}
        try:
            for request in requests:
                open_ids[request.row] = self.add(request, events.append)
            while open_ids:
                while events:
                    event = events.popleft()
                    if event.is_last:
                        del open_ids[event.row]
                    if event.error is not None:
                        raise event.error
                    yield event
                if open_ids:
                    self.step()
        finally:
            for request_id in open_ids.values():
                self.cancel(request_id)

    def step(self) -> bool:
        """Read what is due and draw the next tokens; False if there was nothing to do.

        Whatever goes wrong in the backend ends all that was under way, and is raised.
        """
        with self._lock:
            try:
                return self._step()
            except BaseException:
                self._abandon()
                raise

    def _step(self) -> bool:
        if self._waiting:
            self._admit()
        rows = list(self._rows.values())
        due = [row for row in rows if row.unread == 1]
        reading = [row for row in rows if row.unread > 1]
        if reading:
            self._read(self._share_out(reading, self._prefill_chunk * (1 if due else 4)))
        if due:
            self._go_on(due, is_alone=not reading)
        for request_id, row in list(self._rows.items()):
            if row.finished:
                self.cancel(request_id)
            elif len(row.tokens) > self.context:
                row.drop_oldest(
                    max(1, self.context - self.context // 2), self._bos_length(row.tokens)
                )
        return bool(rows)

    def _admit(self) -> None:
        """Give waiting rows a slot, first come first served."""
        if self.backend.weights_version != self._weights_version:
            self._weights_version = self.backend.weights_version
            self._slots.forget()
        longest = max(row.capacity for row in self._waiting.values())
        if len(self._waiting) > self._slots.free or longest > self.backend.capacity:
            self._fit_cache(self._rounded(longest))
        for request_id, row in list(self._waiting.items()):
            if not self._slots.free or row.capacity > self.backend.capacity:
                return
            del self._waiting[request_id]
            row.slot = self._slots.take()
            self._rows[request_id] = row

    def _fit_cache(self, needed: int) -> None:
        """Give the cache the size that the rows under way and waiting want and the budget allows.

        needed: the capacity that the longest waiting row asks for. Rows under way keep their slots.
        Slots are given up for a longer row, and room for shorter ones, only where the budget has
        no other way.
        """
        wanted = len(self._rows) + len(self._waiting)
        capacity = max(self.backend.capacity, needed)
        most = self._most_slots(capacity)
        if not self._rows and most < wanted:
            capacity, most = needed, self._most_slots(needed)
        slots = min(most, max(wanted, self.backend.slots, _LEAST_SLOTS))
        if any(row.slot >= slots for row in self._rows.values()):
            return
        if (slots, capacity) != (self.backend.slots, self.backend.capacity):
            if capacity < self.backend.capacity:
                self._slots.forget()
            self.backend.resize(slots, capacity)
            self._slots.follow()

    def _most_slots(self, capacity: int) -> int:
        fitting = self._cache_bytes // self.backend.slot_bytes(capacity)
        return min(self._max_slots, max(1, fitting))

    def _rounded(self, capacity: int) -> int:
        """A power of two, so that a growing chat seldom moves the cache; the context at most."""
        return min(self.context, max(_LEAST_CAPACITY, 1 << (capacity - 1).bit_length()))

    def _share_out(self, reading: list[Row], budget: int) -> list[tuple[Row, int]]:
        """Which rows read how many tokens in this pass."""
        shares: list[tuple[Row, int]] = []
        for place, row in enumerate(reading):
            if budget == 0:
                break
            if row.written == 0:
                # Only for rows that came earlier: the first of all waits for none.
                if any(self._is_worth_waiting(row, other) for other in reading[:place]):
                    continue
                row.slot, row.written = self._slots.begin(row.slot, row.tokens)
            length = min(row.unread, budget, self.backend.max_segment)
            shares.append((row, length))
            budget -= length
        return shares

    def _is_worth_waiting(self, row: Row, other: Row) -> bool:
        """Whether `other` is about to read much that `row` could then copy."""
        shared = shared_length(other.tokens, row.tokens, len(row.tokens) - 1)
        if other.written >= shared or self.backend.reusable(shared, shared) < shared:
            return False
        held = self._slots.most_usable(row.tokens, but=other.slot)
        return shared >= held + _WORTH_WAITING

    def _read(self, shares: list[tuple[Row, int]]) -> None:
        """Read the next tokens of some rows in one pass, and draw for those that are through."""
        segments = [row.segment(length) for row, length in shares]
        logits = self.backend.prefill(segments)[:, : self._vocab_size]
        first = 0
        for (row, length), segment in zip(shares, segments, strict=True):
            row.written += length
            own = logits[first : first + segment.num_logits]
            first += len(own)
            if len(own):
                row.draw(own)
            self._slots.note(row.slot, row.tokens[: row.written], segment.end)

    def _go_on(self, due: list[Row], is_alone: bool) -> None:
        """Read the newest token of each row, with its draft if any has one, and draw.

        is_alone: the step reads nothing else, so that its time says what drafts cost.
        """
        for row in due:
            if row.written == 0:
                row.slot, _ = self._slots.begin(row.slot, row.tokens)
        lookups = [row.lookup for row in due]
        if not self._may_draft or not any(lookups):
            self._decode(due)
            return
        longest = self.backend.max_segment - 1
        limits = [row.draft_limit(longest) for row in due]
        drafts = plan(lookups, limits, self._step_times)
        for row, draft in zip(due, drafts, strict=True):
            row.draft = draft
        start = perf_counter()
        if any(drafts):
            self._read([(row, 1) for row in due])
        else:
            self._decode(due)
        if is_alone:
            self._step_times.observe(len(due), sum(map(len, drafts)), perf_counter() - start)

    def _decode(self, due: list[Row]) -> None:
        logits = self.backend.decode(
            [row.slot for row in due],
            [row.tokens[-1] for row in due],
            [row.written for row in due],
        )
        for row, own in zip(due, logits[:, None, : self._vocab_size], strict=True):
            row.draw(own)
            self._slots.note(row.slot, row.tokens[: row.written], row.written)

    def _new_row(self, request: Request, sink: Sink) -> Row:
        params, length = request.params, len(request.prompt)
        slides = params.overflow == "slide"
        if slides:
            limit = params.max_tokens
            if limit is None:
                raise GenerationError(
                    'overflow is "slide" and max_tokens None: such a text need not end.',
                    hint="Give max_tokens.",
                )
        else:
            limit = token_limit(length, params.max_tokens, self.context)
            if params.overflow == "error" and params.max_tokens not in (None, limit):
                raise GenerationError(
                    f"the prompt has {length} tokens and max_tokens is {params.max_tokens}; the "
                    f"model's context holds {self.context}.",
                    hint="Shorten one of them, or choose another overflow than 'error'.",
                )
        row = Row(
            request,
            limit,
            self.context,
            self._vocab_size,
            self.tokenizer,
            compile_constraint(params, self.tokenizer, request.stop_token_ids),
            sink,
        )
        if slides and length > self.context:
            row.drop_oldest(max(1, self.context - 1), self._bos_length(request.prompt))
        return row

    def _bos_length(self, tokens: Sequence[int]) -> int:
        """1 where a row begins with BOS, which sliding then keeps; else 0."""
        tokenizer, config = self.tokenizer, self.backend.config
        bos = tokenizer.bos_token_id if tokenizer else config.bos_token_id
        return int(bos is not None and tokens[0] == bos)

    def _abandon(self) -> None:
        """End all that is under way after a pass that broke off: the cache may be half written."""
        rows, self._rows = list(self._rows.values()), {}
        self._slots.forget()
        for row in rows:
            self._slots.release(row.slot)
            row.fail(GenerationError("the pass that this text was part of went wrong."))

"""Continuous batching: requests join and leave at any step, each with its own settings.

A step reads a chunk of the prompts that are not read yet, so that a long one does not stall the
texts under way, and one token (or a draft of several) of every text under way; then it draws the
next tokens. A row's tokens do not depend on the rows beside it: a query sees its own slot alone,
and each row draws its random numbers from its own seed.

    engine = Engine(TorchBackend(model), tokenizer)
    for event in engine.run([Request(prompt, params, stop_token_ids)]): ...

A server adds requests with a `sink` each and calls `step` in a loop. `add` and `cancel` may be
called from any thread, also from within a sink: they wait for nothing and take effect with the
next step.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from time import perf_counter

from llamita.errors import GenerationError
from llamita.inference.backend import Backend
from llamita.inference.constraints import compile_constraint
from llamita.inference.prompts import check_token_ids
from llamita.inference.request import Request, TokenEvent
from llamita.inference.row import Row, Sink
from llamita.inference.slots import Slots, shared_length
from llamita.inference.speculative import StepTimes, plan
from llamita.inference.stopping import context_length, token_limit
from llamita.tokenizer.base import Tokenizer

PREFILL_CHUNK = 128
IDLE_CHUNKS = 4  # so many chunks a step, where no text under way has to wait for it
_WORTH_WAITING = 32  # tokens that a neighbour is about to read, and that can then be copied


class Engine:
    """Generates for many requests at once on one backend.

    prefill_chunk: the most prompt tokens that one step reads while other texts are under way.
    max_slots, cache_bytes: how many rows are under way together, and what their cache may take; one
    row always fits. tokenizer: without one the events carry no text.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer | None = None,
        *,
        prefill_chunk: int = PREFILL_CHUNK,
        max_slots: int = 64,
        cache_bytes: int = 2 << 30,
    ) -> None:
        self.backend = backend
        self.tokenizer = tokenizer
        self.context = context_length(backend.config)
        self._vocab_size = backend.config.vocab_size
        if tokenizer is not None:
            self._vocab_size = min(self._vocab_size, tokenizer.vocab_size)
        self._prefill_chunk = prefill_chunk
        self._slots = Slots(backend, max_slots, cache_bytes)
        # Where keys depend on the length of the row, those of a draft thrown away would remain.
        self._may_draft = backend.reusable(1, 1) == 1
        self._step_times = StepTimes()
        self._weights_version = backend.weights_version
        self._stepping = threading.Lock()
        self._ids = count()
        self._open: dict[int, Row] = {}  # all that are not over, in the order they came
        self._added: deque[Row] = deque()  # not seen by a step yet
        self._waiting: deque[Row] = deque()
        self._rows: list[Row] = []  # those that have a slot

    def add(self, request: Request, sink: Sink) -> int:
        """Take a request on. Gives its id for `cancel`.

        sink: called with each of its events, within `step`, by the thread that steps. It should
        return soon; where it raises, the request is cancelled and the error logged.

        Raises:
            GenerationError: the prompt is empty, longer than the context or no tokens of the model,
                what was asked for does not fit and `overflow` is "error", or the constraint cannot
                be used.
        """
        row = self._new_row(request, sink)
        request_id = next(self._ids)
        self._open[request_id] = row
        row.on_end = lambda: self._open.pop(request_id, None)
        self._added.append(row)
        return request_id

    def cancel(self, request_id: int) -> None:
        """End a request without another event; one that is over, or unknown, is left so."""
        row = self._open.pop(request_id, None)
        if row is not None:
            row.finished = True

    @property
    def has_work(self) -> bool:
        """Whether any request is not over yet."""
        return bool(self._open)

    def run(self, requests: Sequence[Request]) -> Iterator[TokenEvent]:
        """The events of these requests as they come, beside whatever else is under way.

        Leaving the iterator cancels what is not over.

        Raises:
            GenerationError: as for `add`, or of a row that went wrong.
        """
        events: deque[tuple[int, TokenEvent]] = deque()
        open_ids: dict[int, int] = {}
        try:
            for place, request in enumerate(requests):
                sink = partial(_put, events, place)
                open_ids[place] = self.add(request, sink)
            while open_ids:
                while events:
                    place, event = events.popleft()
                    if event.is_last:
                        del open_ids[place]
                    if event.error is not None:
                        raise event.error
                    yield event
                if open_ids and not self.step() and not events:
                    raise GenerationError("this text was cancelled.")
        finally:
            for request_id in open_ids.values():
                self.cancel(request_id)

    def step(self) -> bool:
        """Read what is due and draw the next tokens; False if there was nothing to do.

        Whatever goes wrong in the backend ends all that was under way, and is raised.
        """
        with self._stepping:
            try:
                return self._step()
            except BaseException:
                self._abandon()
                raise

    def free(self) -> None:
        """Give the memory of the cache back, and with it what was read; not while `has_work`."""
        with self._stepping:
            self._sweep()
            if not self._rows:
                self._slots.free_memory()

    def _step(self) -> bool:
        self._sweep()
        self._read_anew_if_changed()
        if self._waiting:
            self._admit()
        due = [row for row in self._rows if row.unread == 1]
        reading = [row for row in self._rows if row.unread > 1]
        if reading:
            budget = self._prefill_chunk * (1 if due else IDLE_CHUNKS)
            self._read(self._share_out(reading, budget))
        if due:
            self._go_on(due, is_alone=not reading)
        for row in self._rows:
            if not row.finished and len(row.tokens) > self.context:
                row.drop_oldest(max(1, self.context - self.context // 2), self._bos_length(row))
        return bool(due or reading or self._waiting)

    def _sweep(self) -> None:
        """Take in what was added, and free the slots of what is over or was cancelled."""
        while self._added:
            row = self._added.popleft()
            if row.limit == 0:
                row.end()
            self._waiting.append(row)
        self._waiting = deque(row for row in self._waiting if not row.finished)
        for row in self._rows:
            if row.finished:
                self._slots.release(row.slot)
        self._rows = [row for row in self._rows if not row.finished]

    def _read_anew_if_changed(self) -> None:
        version = self.backend.weights_version
        if version != self._weights_version:
            self._weights_version = version
            self._slots.forget()
            for row in self._rows:
                row.written = 0

    def _admit(self) -> None:
        """Give waiting rows a slot, first come first served."""
        capacity = max(row.capacity for row in (*self._rows, *self._waiting))
        if len(self._waiting) > self._slots.free or capacity > self.backend.capacity:
            try:
                self._slots.make_room(len(self._waiting), capacity)
            except (MemoryError, RuntimeError) as cause:
                longest = max(self._waiting, key=lambda row: row.capacity)
                longest.fail(
                    GenerationError(
                        f"there is no memory for a cache of {longest.capacity} tokens: {cause}",
                        hint="Give a smaller max_tokens or a shorter prompt.",
                    )
                )
                self._waiting.remove(longest)
        while self._waiting and self._slots.free:
            if self._waiting[0].capacity > self.backend.capacity:
                return
            row = self._waiting.popleft()
            row.slot = self._slots.take()
            self._rows.append(row)

    def _share_out(self, reading: list[Row], budget: int) -> list[tuple[Row, int]]:
        """Which rows read how many tokens in this pass: as many each, the rest as they came."""
        # Only for rows that came earlier: the first of all waits for none.
        ready = [
            row
            for place, row in enumerate(reading)
            if row.written or not any(self._is_worth_waiting(row, it) for it in reading[:place])
        ]
        for row in ready:
            self._begin(row)
        lengths = [0] * len(ready)
        for share in (max(1, budget // len(ready)), budget):
            for place, row in enumerate(ready):
                room = min(row.unread, self.backend.max_segment) - lengths[place]
                more = min(room, share, budget)
                lengths[place] += more
                budget -= more
        return [(row, length) for row, length in zip(ready, lengths, strict=True) if length]

    def _begin(self, row: Row) -> None:
        if row.written == 0:
            row.slot, row.written = self._slots.begin(row.slot, row.tokens)

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
            self._slots.note(row.slot, row.tokens, row.written, segment.end)

    def _go_on(self, due: list[Row], is_alone: bool) -> None:
        """Read the newest token of each row, with its draft if any has one, and draw.

        is_alone: the step reads nothing else, so that its time says what drafts cost.
        """
        for row in due:
            self._begin(row)
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
            self._slots.note(row.slot, row.tokens, row.written, row.written)

    def _new_row(self, request: Request, sink: Sink) -> Row:
        params, length = request.params, len(request.prompt)
        if not length:
            raise GenerationError("the prompt is empty.", hint="Give at least one token.")
        check_token_ids(request.prompt, self.backend.config.vocab_size, "the prompt")
        row = Row(
            request,
            limit=token_limit(length, params, self.context),
            context=self.context,
            vocab_size=self._vocab_size,
            tokenizer=self.tokenizer,
            constraint=request.constraint
            or compile_constraint(params, self.tokenizer, request.stop_token_ids),
            sink=sink,
        )
        if length > self.context:
            row.drop_oldest(max(1, self.context - 1), self._bos_length(row))
        return row

    def _bos_length(self, row: Row) -> int:
        """1 where a row begins with BOS, which sliding then keeps; else 0."""
        tokenizer, config = self.tokenizer, self.backend.config
        bos = tokenizer.bos_token_id if tokenizer else config.bos_token_id
        return int(bos is not None and row.tokens[0] == bos)

    def _abandon(self) -> None:
        """End all that is under way after a pass that broke off: the cache may be half written."""
        rows, self._rows = self._rows, []
        self._slots.forget()
        for row in rows:
            self._slots.release(row.slot)
        for row in rows:
            row.fail(GenerationError("the pass that this text was part of went wrong."))


def _put(events: deque[tuple[int, TokenEvent]], place: int, event: TokenEvent) -> None:
    events.append((place, event))

"""Which slot of the cache holds which tokens, so that a shared beginning is read only once.

A slot keeps what it read until another row takes it. A new row goes where the longest beginning of
its tokens lies already: in that slot itself if it is free and little else would be lost, else by
copying those positions, which is far cheaper than reading them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from operator import ne

from llamita.inference.backend import Backend
from llamita.inference.stopping import context_length

_LEAST_SLOTS = 4  # a second conversation should not cost the first its cache
_LEAST_CAPACITY = 256


class Slots:
    """The slots of one backend. `held[slot]` are the tokens in it, position by position.

    max_slots, max_bytes: how many slots there may be and what all may take; one always may be.
    """

    def __init__(self, backend: Backend, max_slots: int, max_bytes: int) -> None:
        self._backend = backend
        self._max_slots = max_slots
        self._max_bytes = max_bytes
        self._clock = count(1)
        self.held: list[list[int]] = []
        self._is_free: list[bool] = []
        self._used: list[int] = []
        self._reach: list[int] = []
        self._follow()

    @property
    def free(self) -> int:
        """How many slots are free."""
        return sum(self._is_free)

    def make_room(self, waiting: int, capacity: int) -> None:
        """Give the cache the size that so many more rows want, as far as the budget allows.

        capacity: what the longest row, under way or waiting, may come to need. Rows under way keep
        their slots. Slots are given up for a longer row, and room for shorter ones, only where the
        budget has no other way.
        """
        backend = self._backend
        wanted = len(self._is_free) - self.free + waiting
        # A power of two, so that a growing chat seldom moves the cache.
        needed = min(
            context_length(backend.config), max(_LEAST_CAPACITY, 1 << (capacity - 1).bit_length())
        )
        capacity = max(backend.capacity, needed)
        if self._most(capacity) < wanted:
            capacity = needed
        slots = min(self._most(capacity), max(wanted, backend.slots, _LEAST_SLOTS))
        if all(self._is_free[slots:]) and (slots, capacity) != (backend.slots, backend.capacity):
            backend.resize(slots, capacity)
            self._follow()

    def free_memory(self) -> None:
        """Leave no slot at all; all must be free."""
        self._backend.resize(0, 0)
        self._follow()

    def take(self) -> int:
        """Occupy the free slot that was out of use the longest; it keeps its tokens for now."""
        slot = min(self._free_slots(), key=lambda slot: (self._used[slot], slot))
        return self._occupy(slot)

    def release(self, slot: int) -> None:
        """Free a slot; what it holds may serve others."""
        self._is_free[slot] = True
        self._used[slot] = next(self._clock)

    def forget(self) -> None:
        """Say that no slot holds anything any more."""
        for tokens in self.held:
            tokens.clear()

    def begin(self, slot: int, tokens: Sequence[int]) -> tuple[int, int]:
        """Prepare an occupied `slot` for a row of `tokens`: gives its slot and how much it holds.

        The slot may be exchanged for a free one that holds more of the row. At least the last token
        is left to be read, since its logits are wanted.
        """
        lengths = [self.usable(other, tokens) for other in range(len(self.held))]
        source = max(range(len(lengths)), key=lambda other: (lengths[other], other == slot))
        length = lengths[source]
        if length == 0:
            self.held[slot].clear()
            self._reach[slot] = 0
            return slot, 0
        if source != slot:
            if self._is_free[source] and 2 * length >= len(self.held[source]):
                self.release(slot)
                slot = self._occupy(source)
            else:
                self._backend.copy(source, slot, length)
                self._reach[slot] = self._reach[source]
                self._used[source] = next(self._clock)
        self.held[slot] = list(tokens[:length])
        return slot, length

    def note(self, slot: int, tokens: Sequence[int], written: int, reach: int) -> None:
        """Say that a slot holds the first `written` of `tokens`.

        reach: up to which position was written to, a draft thrown away among it.
        """
        held = self.held[slot]
        del held[written:]
        held.extend(tokens[len(held) : written])
        self._reach[slot] = max(reach, self._reach[slot])

    def most_usable(self, tokens: Sequence[int], but: int) -> int:
        """How many first tokens of a row could be taken over from any slot but one."""
        others = (slot for slot in range(len(self.held)) if slot != but)
        return max((self.usable(slot, tokens) for slot in others), default=0)

    def usable(self, slot: int, tokens: Sequence[int]) -> int:
        """How many first tokens of a row could be taken over from what `slot` holds."""
        held = self.held[slot]
        shared = shared_length(held, tokens, len(tokens) - 1)
        return self._backend.reusable(self._reach[slot], shared) if shared else 0

    def _follow(self) -> None:
        """Have as many slots as the backend has now, and what they had to give up."""
        slots, capacity = self._backend.slots, self._backend.capacity
        del self.held[slots:], self._is_free[slots:], self._used[slots:], self._reach[slots:]
        for slot, reach in enumerate(self._reach):
            if reach > capacity:
                self.held[slot].clear()
                self._reach[slot] = 0
        for _ in range(slots - len(self.held)):
            self.held.append([])
            self._is_free.append(True)
            self._used.append(0)
            self._reach.append(0)

    def _most(self, capacity: int) -> int:
        """How many slots of this capacity the budget has room for."""
        return min(self._max_slots, max(1, self._max_bytes // self._backend.slot_bytes(capacity)))

    def _free_slots(self) -> list[int]:
        return [slot for slot, is_free in enumerate(self._is_free) if is_free]

    def _occupy(self, slot: int) -> int:
        self._is_free[slot] = False
        return slot


def shared_length(first: Sequence[int], second: Sequence[int], limit: int) -> int:
    """How many tokens two rows have in common from the beginning, at most `limit`."""
    limit = min(limit, len(first), len(second))
    return next((i for i, differs in enumerate(map(ne, first[:limit], second)) if differs), limit)

"""How much a chat template may do: steps, sizes and time of one rendering.

A template comes with a model, so it may come from anyone. It may go through its messages as often
as it likes, but not run for ever or build a text of gigabytes out of three lines.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, MappingView
from contextvars import ContextVar
from typing import Any

from jinja2.utils import Namespace

MAX_STEPS = 100_000  # and as many more as the chat has characters
MAX_SECONDS = 5.0  # the backstop for single steps that are slow; steps and sizes end it before
MAX_WIDTH = 10_000
MAX_INTEGER_BITS = 4096
_OWN_SIZE = 1_000_000  # characters that a template may add to what it is given
_GROWTH = 20  # how often it may repeat what it is given
_WORK = 50  # how often it may write as much as its output may hold
_NODE = 10  # characters that looking at anything but a text is worth
_WIDTHS = re.compile(r"\d+")


class BoundExceeded(Exception):
    """The template wants more than one rendering may take."""


class Budget:
    """What is left to one rendering of messages and tools that weigh `given`."""

    def __init__(self, given: int) -> None:
        self.size = _OWN_SIZE + _GROWTH * given
        self.written = 0
        self._work = _WORK * self.size
        self._steps = self._most_steps = MAX_STEPS + given
        # Of this thread: on a busy machine a good template may take long by the clock.
        self._end = time.thread_time() + MAX_SECONDS

    def step(self) -> None:
        """One turn of a loop or call of a macro."""
        self._steps -= 1
        if self._steps < 0:
            raise BoundExceeded(f"it takes more than {self._most_steps:,} steps")
        if time.thread_time() > self._end:
            raise BoundExceeded(f"it takes more than {MAX_SECONDS:g} seconds")

    def spend(self, size: int) -> None:
        """Something of `size` characters or items is about to be made."""
        self._work -= size
        if size > self.size:
            raise BoundExceeded(f"it makes something larger than {self.size:,} characters")
        if self._work < 0:
            raise BoundExceeded("it copies text over and over")

    def write(self, size: int) -> None:
        """The rendering has got so many characters more."""
        self.written += size
        self.spend(size)
        if self.written > self.size:
            raise BoundExceeded(f"it writes more than {self.size:,} characters")

    def weigh(self, value: Any) -> int:
        """About the characters that `value` takes when written out, each reference by itself."""
        total = weight(value, self.size)
        self.spend(total)
        return total


budget: ContextVar[Budget] = ContextVar("chat template budget")


def weight(value: Any, limit: float = math.inf) -> int:
    """`Budget.weigh` without a budget; counting ends somewhere above `limit`."""
    if isinstance(value, str):
        return len(value)
    total = 0
    stack = [value]
    while stack and total <= limit:
        item = stack.pop()
        if isinstance(item, str):  # most are
            total += len(item)
            continue
        total += _own_weight(item)
        stack.extend(_parts(item))
    return total


def check_width(number: Any) -> None:
    """Refuse a width, count or precision that no chat needs."""
    if isinstance(number, int) and abs(number) > MAX_WIDTH:
        raise BoundExceeded(f"it asks for a width or count of {abs(number)}")


def check_format(template: str) -> None:
    """Refuse the widths and precisions inside a format string or a format specification."""
    for digits in _WIDTHS.findall(template):
        if len(digits) > 5 or int(digits) > MAX_WIDTH:
            raise BoundExceeded(f"it asks for a width of {digits[:20]}")


def spend_on_percent(template: str, arguments: Any) -> None:
    """Bound `template % arguments`."""
    check_format(template)
    widths = arguments if isinstance(arguments, tuple) else ()
    for argument in widths:
        check_width(argument)
    fields = template.count("%")
    if fields:
        weight = budget.get().weigh(arguments)
        budget.get().spend(len(template) + fields * (weight + MAX_WIDTH // 100))


def spend_on_replacing(text: str, old: str, new: str, count: int) -> None:
    """Bound `text.replace(old, new, count)`."""
    found = text.count(old)
    if count >= 0:
        found = min(found, count)
    budget.get().spend(len(text) + found * len(new))


def _own_weight(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, int):
        return _NODE + value.bit_length() // 3
    return _NODE


def _parts(value: Any) -> Any:
    if isinstance(value, Namespace):
        value = object.__getattribute__(value, "_Namespace__attrs")
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset | MappingView):
        return value
    return ()

"""Where each turn begins in a rendering, found while the whole conversation is written once.

A template that merely appends writes the first messages of a conversation as it writes all of them,
up to where it asks for one more; then it goes on with what stands behind its loop. Nothing has to
be rendered anew to know such a beginning. Whether a template is of that kind is not guessed: it is
seen in each conversation anew. The messages come as an object that notes what the template has
learned of their number, so that whatever looks ahead (`loop.last`, `messages[-1]`, a length, a
first pass over all of them) is found, and where it did so no beginning is known. What stands behind
the loop must depend on nothing that the template has worked out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from itertools import count
from typing import Any, NoReturn

from jinja2 import nodes

from llamita.tokenizer.chat_bounds import budget
from llamita.tokenizer.chat_instrument import hook, hook_filters, hook_statement

# What the names stand for changes from place to place.
_CHANGING = frozenset({"messages", "loop", "self", "caller", "varargs", "kwargs"})


class _NotFollowedError(Exception):
    """The template does with its messages what only a list can."""


class Turns:
    """What a template has learned of a conversation while it writes it."""

    def __init__(self, messages: Sequence[Any]) -> None:
        self.messages = messages
        self.starts: dict[int, int] = {}
        """The place in the rendering where a number of messages is written, and it asks for more.

        A conversation of that number is written alike up to there; then its loop ends.
        """
        self._known = self._ended = 0

    def learn(self, index: int) -> None:
        """The template sees that there is a message `index`, or that there is none."""
        self._known = max(self._known, index + 1)

    def learn_all(self) -> None:
        """The template sees how many messages there are."""
        self._known = len(self.messages) + 1

    def end(self) -> None:
        """The loop is through with a message."""
        self._ended += 1

    def loop(self, first: int) -> Iterator[Any]:
        """The messages from `first` on, for the loop that writes them."""
        for index in count(first):
            if self._known <= index and self._ended == index - first:
                self.starts[index] = budget.get().written
            if index >= len(self.messages):
                return
            yield self.messages[index]


class FollowedMessages:
    """The messages as a template sees them: like a list, in all that templates do with it."""

    def __init__(self, turns: Turns, first: int = 0) -> None:
        self._turns = turns
        self._first = first

    def __bool__(self) -> bool:
        self._turns.learn(self._first)
        return self._first < len(self._turns.messages)

    def __len__(self) -> int:
        self._turns.learn_all()
        return len(self._rest())

    def __iter__(self) -> Iterator[Any]:
        for index in count(self._first):
            self._turns.learn(index)
            if index >= len(self._turns.messages):
                return
            yield self._turns.messages[index]

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, int) and place >= 0:
            self._turns.learn(self._first + place)
            return self._turns.messages[self._first + place]
        if _is_from(place):
            return FollowedMessages(self._turns, self._first + (place.start or 0))
        self._turns.learn_all()
        return self._rest()[place]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _NotFollowedError(f"it asks for {name} of the messages")

    def __eq__(self, other: object) -> bool:
        raise _NotFollowedError("it compares the messages")

    def __str__(self) -> str:
        raise _NotFollowedError("it writes the messages as a list")

    __repr__ = __str__

    def _rest(self) -> Sequence[Any]:
        return self._turns.messages[self._first :]


def _is_from(place: Any) -> bool:
    """Whether it is a slice as in `messages[1:]`."""
    return (
        isinstance(place, slice)
        and place.stop is None
        and place.step is None
        and (place.start is None or (isinstance(place.start, int) and place.start >= 0))
    )


following: ContextVar[Turns] = ContextVar("the turns of the conversation that is written")


def _loop(messages: Any) -> Any:
    if isinstance(messages, FollowedMessages):
        return messages._turns.loop(messages._first)
    return messages


def _end(_value: None) -> None:
    following.get().end()


FOLLOWING = hook_filters({"turns": _loop, "end": _end})
"""The filters of templates whose loop is followed."""


def follow_loop(tree: nodes.Template) -> nodes.Template | None:
    """Lets a parsed template say where it asks for its messages; gives what stands behind its loop.

    None where it does not end in a loop and what depends on nothing that it has worked out.
    """
    assigned = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    assigned |= {macro.name for macro in tree.find_all(nodes.Macro)} | _CHANGING
    end = len(tree.body)
    while end and not assigned & {name.name for name in _names(tree.body[end - 1])}:
        end -= 1
    loop = tree.body[end - 1] if end else None
    draws = any(used.name == "random" for used in tree.find_all(nodes.Filter))
    if not isinstance(loop, nodes.For) or loop.else_ or loop.recursive or draws:
        return None
    loop.iter = hook("turns", loop.iter, loop)
    loop.body.append(hook_statement("end", loop))
    return nodes.Template(tree.body[end:], lineno=1)


def _names(node: nodes.Node) -> Iterator[nodes.Name]:
    if isinstance(node, nodes.Name):
        yield node
    yield from node.find_all(nodes.Name)

"""One answer of a chat as it comes: its text piece by piece, and at the end the whole message."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from llamita.inference.call_signs import Call, call_signs
from llamita.inference.request import Request, TokenEvent
from llamita.inference.results import Generation, collect
from llamita.tokenizer.chat import ChatFormat


class ChatStream:
    """Iterates over the text of an answer; tool calls are no part of it.

    generation: the answer, with its `message`; None until the iteration has come to its end.
    `text` is what has been given so far. Closing the stream ends the answer.
    """

    def __init__(
        self,
        request: Request,
        events: Iterator[TokenEvent],
        answered: Callable[[Generation], Generation],
        chat: ChatFormat,
    ) -> None:
        self.generation: Generation | None = None
        self.text = ""
        self._request = request
        self._events = events
        self._answered = answered
        self._chat = chat
        self._pieces = self._read()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        piece = next(self._pieces)
        self.text += piece
        return piece

    def close(self) -> None:
        """End the answer, if it is still under way."""
        self._pieces.close()

    def _read(self) -> Generator[str, None, None]:
        shown = _BeforeCalls(self._chat)
        events = []
        try:
            for event in self._events:
                events.append(event)
                piece = shown.push(event)
                if piece:
                    yield piece
        finally:
            close = getattr(self._events, "close", None)
            if close is not None:
                close()
        [result] = collect([self._request], events)
        answer = self._answered(result)
        rest = shown.rest(answer.tool_calls != [])
        if rest:
            yield rest
        self.generation = answer


class _BeforeCalls:
    """The text that stands before the first call, as far as it is certain to."""

    def __init__(self, chat: ChatFormat) -> None:
        syntax = chat.tool_syntax
        self._signs = None if syntax is None else call_signs(syntax, chat.reasons)
        self._state = self._signs.start if self._signs else None
        self._names = chat.structural_names
        self._held = b""
        self._in_calls = False

    def push(self, event: TokenEvent) -> str:
        if self._signs is None or self._state is None:
            return event.text
        data = event.text.encode()
        if self._in_calls:
            self._held += data
            return ""
        name = b""
        if event.token_id is not None:
            name = self._names.get(event.token_id, "").encode()
        after = self._signs.read(self._state, data + name)
        self._held += data
        if isinstance(after, Call):
            self._in_calls = True
            shown = self._without_sign(self._held[: max(0, len(self._held) - len(after.written))])
            self._held = self._held[len(shown) :]
            return shown.decode(errors="replace")
        self._state = after
        held = self._signs.held(after)
        if held is None:
            return ""
        certain = len(self._held) - held
        shown, self._held = self._held[:certain], self._held[certain:]
        return shown.decode(errors="replace")

    def rest(self, has_calls: bool) -> str:
        return "" if has_calls else self._held.decode(errors="replace")

    def _without_sign(self, text: bytes) -> bytes:
        assert self._signs is not None
        for sign in self._signs.signs:
            text = text.removesuffix(sign.encode())
        return text

"""One answer of a chat as it comes: its text piece by piece, and at the end the whole message."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from llamita.inference.call_signs import Call, call_signs
from llamita.inference.chat_requests import answered
from llamita.inference.request import Request, TokenEvent
from llamita.inference.results import Generation, collect
from llamita.tokenizer.chat import ChatFormat


class ChatStream:
    """Iterates over the text of an answer; tool calls are no part of it, also where they are torn.

    generation: the answer, with its `message`; None until the iteration has come to its end.
    `text` is what has been given so far. Closing the stream ends the answer. calls: whether the
    answer may hold calls; text of one that may not comes as it is.
    """

    def __init__(
        self,
        request: Request,
        events: Iterator[TokenEvent],
        chat: ChatFormat,
        *,
        dropped_messages: int = 0,
        calls: bool = False,
    ) -> None:
        self.generation: Generation | None = None
        self.text = ""
        self._request = request
        self._events = events
        self._chat = chat
        self._dropped_messages = dropped_messages
        self._calls = calls
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
        shown = _BeforeCalls(self._chat, self._calls)
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
        answer = answered(self._chat, result, self._dropped_messages, self._calls)
        rest = shown.rest(self._chat, answer)
        if rest:
            yield rest
        self.generation = answer


class _BeforeCalls:
    """The text that stands before the first call, as far as it is certain to."""

    def __init__(self, chat: ChatFormat, calls: bool) -> None:
        syntax = chat.tool_syntax if calls else None
        self._signs = None if syntax is None else call_signs(syntax, chat.reasons)
        self._state = self._signs.start if self._signs else None
        self._names = chat.structural_names
        self._held = b""
        self._shown = b""
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
            return self._show(len(shown))
        self._state = after
        held = self._signs.held(after)
        if held is None:
            return ""
        return self._show(len(self._held) - held)

    def _show(self, length: int) -> str:
        shown, self._held = self._held[:length], self._held[length:]
        self._shown += shown
        return shown.decode(errors="replace")

    def rest(self, chat: ChatFormat, answer: Generation) -> str:
        """What of the answer is still to be shown at its end, calls left out."""
        held = self._held.decode(errors="replace")
        content = before = str((answer.message or {})["content"])
        if answer.finish_reason == "length" and self._signs is not None:
            before = chat.before_calls(content)  # the rest is a torn call
        if answer.tool_calls:
            return before[_common(self._shown.decode(errors="replace").rstrip(), before) :]
        if before == content:
            return held
        return "" if self._in_calls else chat.before_calls(held)

    def _without_sign(self, text: bytes) -> bytes:
        assert self._signs is not None
        for sign in self._signs.signs:
            text = text.removesuffix(sign.encode())
        return text


def _common(shown: str, content: str) -> int:
    """How much of the content, in whole lines, what is shown ends with; reasoning may precede."""
    ends = [place for place, character in enumerate(content) if character == "\n"]
    return next((end for end in [len(content), *ends[::-1]] if shown.endswith(content[:end])), 0)

"""A conversation on the command line: turns read from a terminal or from lines, answers shown."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from llamita.cli.chat_tools import ToolsOfChat, shown_call
from llamita.cli.progress import for_terminal, say
from llamita.errors import DataError, LlamitaError
from llamita.inference.tool_loop import LoopEvent, call_of, run_tools, tool_message
from llamita.tools.results import error_text

if TYPE_CHECKING:
    from llamita.inference.lm import LM

_HELP = """\
/reset   forget the conversation
/help    this text
//usr    says /usr
Ctrl-C   end the answer; once more, at the prompt, the chat
Ctrl-D   end the chat"""
_LONGEST_RESULT = 500


class Session:
    """The messages of a chat, and how the next turn is answered.

    messages: what has been said. finish_reason: of the last answer. shows: whether answers go to
    stdout as they come. Raises what the model's chat format says of tools and a system message.
    """

    def __init__(
        self,
        lm: LM,
        tools: ToolsOfChat,
        *,
        system: str | None,
        max_steps: int,
        settings: Mapping[str, Any],
        shows: bool,
    ) -> None:
        self.messages: list[dict[str, Any]] = []
        self.finish_reason: str | None = None
        self._lm = lm
        self._tools = tools
        self._beginning = [] if system is None else [{"role": "system", "content": system}]
        self._max_steps = max_steps
        self._settings = settings
        self._shows = shows
        self._partial = ""
        self.reset()
        # A model that cannot chat so, or tools that cannot be enforced, are told here and not after
        # the first question.
        first = [*self.messages, {"role": "user", "content": "?"}]
        lm.stream_chat(first, tools.toolbox, **settings).close()

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = list(self._beginning)

    def turn(self, text: str) -> None:
        """Answer a user's turn. What is interrupted or fails leaves a conversation that goes on.

        Raises:
            LlamitaError: the turn does not fit; it is forgotten, but where tools have run for it.
            KeyboardInterrupt: the answer was stopped; what was said of it stays.
        """
        before = len(self.messages)
        self.messages.append({"role": "user", "content": text})
        self._partial = ""
        try:
            run_tools(
                self._lm,
                list(self.messages),
                self._tools.toolbox,
                max_steps=self._max_steps,
                allow=self._tools.allow,
                on_event=self._on_event,
                **self._settings,
            )
        except KeyboardInterrupt:
            self._close_turn(before, "stopped by the user")
            raise
        except LlamitaError:
            if self._has_run(before):
                self._close_turn(before, "the turn ended before")
            else:
                del self.messages[before:]
            raise

    def _on_event(self, event: LoopEvent) -> None:
        if event.kind == "text":
            self._partial += event.text
            self._show(event.text)
        elif event.kind == "limit":
            say(f"{self._max_steps} steps of calls are over; the model has to answer now.")
        elif event.message is not None:
            self.messages.append(dict(event.message))
            if event.message["role"] == "tool":
                self._show_result(event.message)
            else:
                self._end_answer(event)

    def _end_answer(self, event: LoopEvent) -> None:
        generation = event.generation
        assert generation is not None
        if self._partial or not generation.tool_calls:  # an empty answer is a line too
            self._show("\n")
        self._partial = ""
        self.finish_reason = generation.finish_reason
        for call in generation.tool_calls:
            say(f"  {shown_call(*call_of(call))}")
        if generation.dropped_messages:
            say(f"the oldest {generation.dropped_messages} messages no longer fit the context.")
        if generation.finish_reason == "length":
            say("the answer is cut off: max_tokens or the context is reached.")

    def _show_result(self, message: Mapping[str, Any]) -> None:
        text = "".join(c if c.isprintable() else "\ufffd" for c in message["content"])
        if len(text) > _LONGEST_RESULT:
            text = f"{text[:_LONGEST_RESULT]}… ({len(text):,} characters)"
        say(f"  -> {text}")

    def _show(self, text: str) -> None:
        if self._shows:
            print(for_terminal(text), end="", flush=True)

    def _close_turn(self, before: int, why: str) -> None:
        """Make what an interrupted turn left a conversation: no call without a result."""
        if self._partial:
            self.messages.append({"role": "assistant", "content": self._partial})
            return
        answered = {m.get("tool_call_id") for m in self.messages if m["role"] == "tool"}
        calls = [call for m in self.messages[before:] for call in m.get("tool_calls", [])]
        for call in calls:
            if call["id"] not in answered:
                self.messages.append(tool_message(call, error_text(why)))
        if not calls and not self._has_run(before):
            del self.messages[before:]

    def _has_run(self, before: int) -> bool:
        return any(message["role"] == "tool" for message in self.messages[before:])


def run_session(session: Session, *, prints_json: bool) -> None:
    """Answer turns until there are no more."""
    if sys.stdin is None:
        raise DataError("there is no stdin to read what is said from.")
    try:
        if sys.stdin.isatty():
            _talk(session)
        else:
            for text in _lines():
                session.turn(text)
    finally:  # what was answered is the user's, whatever ends the chat
        if prints_json:
            said = {"messages": session.messages, "finish_reason": session.finish_reason}
            print(json.dumps(said, ensure_ascii=False))


def _talk(session: Session) -> None:
    """Turns from a terminal. Ctrl-C at the prompt is the caller's."""
    say("/help tells what can be said beside the conversation; Ctrl-D ends it.")
    while True:
        try:
            text = _read_turn().strip()
        except EOFError:
            say("")
            return
        if text == "/help":
            say(_HELP)
        elif text == "/reset":
            session.reset()
            say("The conversation is forgotten.")
        elif text.startswith("/") and text[1:].isalpha():
            say(f"there is no command {text}. /help tells which there are; /{text} says it.")
        elif text:
            try:
                session.turn(text[1:] if text.startswith("//") else text)
            except KeyboardInterrupt:
                say("\n(stopped)")
            except LlamitaError as error:
                say(f"llamita: {error}")


def _read_turn() -> str:
    """A line, edited with the arrow keys where the system can."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (input uses it)
    if sys.stdout.isatty():
        return input("> ")
    print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def _lines() -> Iterator[str]:
    """The turns on stdin, a line each; empty ones are none."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise DataError(
                f"line {number} of stdin is not UTF-8 text: byte {error.start} is wrong."
            ) from None
        if text:
            yield text

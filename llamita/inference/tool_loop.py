"""The loop of a model with tools: it calls, the tools run, it reads their results and answers.

new = run_tools(lm, messages, Toolbox.load("builtin"), temperature=0)
messages += new
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from llamita.errors import GenerationError
from llamita.inference.chat_requests import ChatSettings
from llamita.inference.param_checks import integer
from llamita.inference.results import Generation
from llamita.inference.stopping import context_length
from llamita.tokenizer.chat_json import decode_json
from llamita.tokenizer.chat_tools import described, new_call_id
from llamita.tools.results import error_text
from llamita.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from llamita.inference.lm import LM

DEFAULT_MAX_STEPS = 8
MOST_CALLS = 16
"""Of one answer; the others get an error."""

_ANSWERS_SHARE = 8  # an eighth of the context is kept for the answer
_NO_ROOM = "the conversation has no room left for it"
_NAME = re.compile(r'"name"\s*:\s*"([\w.-]{1,64})"')

Allow = Callable[[str, Mapping[str, Any]], bool]
"""Whether a tool of this name may run with these arguments."""


@dataclass(frozen=True)
class LoopEvent:
    """What happens in the loop.

    text: a piece of an answer has come. message: a message is whole, of the assistant (then with
    its generation) or of a tool. limit: max_steps is reached, and one answer without calls follows.
    """

    kind: Literal["text", "message", "limit"]
    text: str = ""
    message: Mapping[str, Any] | None = None
    generation: Generation | None = None


def run_tools(
    lm: LM,
    messages: Sequence[Mapping[str, Any]],
    toolbox: Toolbox,
    *,
    max_steps: int = DEFAULT_MAX_STEPS,
    allow: Allow | None = None,
    on_event: Callable[[LoopEvent], object] | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Answer a conversation, calling tools on the way: the new messages, the answer last.

    A call of a tool that is not there, arguments that do not fit, a call that is no valid JSON and
    one that is not allowed get an error as their result, as do calls beyond `MOST_CALLS` of an
    answer and results that take half of the context or leave no room in it, and the model goes on.
    So often as `max_steps` it may call; the answer after that is without calls. An answer that
    max_tokens or the context cuts off is the last: none of its calls is run or kept.

    allow: asked before a tool runs; None: all may. on_event: told what happens. The settings are
    those of `lm.chat`; tool_choice is for the first answer, later ones are free.

    Raises:
        GenerationError: as `lm.chat`.
    """
    integer("max_steps", max_steps, "0 or more", 0)
    tell = on_event or (lambda event: None)
    new: list[dict[str, Any]] = []
    choice = settings.pop("tool_choice", "auto")
    room = _Room(lm, toolbox, ChatSettings.of(settings))
    for step in range(max_steps + 1):
        is_last = step == max_steps
        if is_last and len(toolbox) and step:
            tell(LoopEvent("limit"))
        stream = lm.stream_chat(
            [*messages, *new],
            toolbox if len(toolbox) else None,
            tool_choice="none" if is_last else choice,
            **settings,
        )
        with closing(stream):  # whoever is told may raise
            for piece in stream:
                tell(LoopEvent("text", piece))
        assert stream.generation is not None
        may_call = bool(len(toolbox)) and not is_last and choice != "none"
        generation = _without_torn(lm, stream.generation, may_call)
        assert generation.message is not None
        new.append(generation.message)
        tell(LoopEvent("message", message=generation.message, generation=generation))
        calls = [] if is_last else _calls(lm, generation, toolbox)
        for place, (call, wrong) in enumerate(calls):
            content = _run(call, toolbox, allow) if wrong is None else error_text(wrong)
            waiting = [tool_message(later, error_text(_NO_ROOM)) for later, _ in calls[place + 1 :]]
            result = room.fitted(tool_message(call, content), [*messages, *new], waiting)
            new.append(result)
            tell(LoopEvent("message", message=result))  # at once: it has run
        if not calls:
            break
        choice = "auto"
    return new


def call_of(call: Mapping[str, Any]) -> tuple[str, Any]:
    """The name and the arguments of a call in OpenAI's form; arguments that are no JSON as text."""
    function = described(call)
    arguments = function["arguments"]
    if isinstance(arguments, str):
        try:
            arguments = decode_json(arguments)
        except (ValueError, RecursionError):
            return function["name"], arguments
    return function["name"], arguments


def tool_message(call: Mapping[str, Any], content: str) -> dict[str, Any]:
    """The message that answers a call."""
    name = call["function"]["name"]
    return {"role": "tool", "tool_call_id": call["id"], "name": name, "content": content}


def _without_torn(lm: LM, generation: Generation, may_call: bool) -> Generation:
    """An answer that was cut off, without its calls and what it began of one."""
    message = generation.message or {}
    if generation.finish_reason != "length" or not may_call:
        return generation
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    kept["content"] = lm.chat_format.before_calls(kept["content"])
    return replace(generation, message=kept)


def _calls(
    lm: LM, generation: Generation, toolbox: Toolbox
) -> list[tuple[Mapping[str, Any], str | None]]:
    """What the model called, or began as a call, and what is wrong with each before it is read."""
    if generation.finish_reason == "length" or not len(toolbox):
        return []
    if generation.tool_calls:
        beyond = f"an answer may hold {MOST_CALLS} calls; this one was not run"
        return [
            (call, None if place < MOST_CALLS else beyond)
            for place, call in enumerate(generation.tool_calls)
        ]
    content = (generation.message or {}).get("content") or ""
    broken = lm.chat_format.broken_call(content)
    if broken is None:
        return []
    named = _NAME.search(content)
    function = {"name": named[1] if named else "unknown", "arguments": "{}"}
    return [({"id": new_call_id(), "function": function}, broken)]


def _run(call: Mapping[str, Any], toolbox: Toolbox, allow: Allow | None) -> str:
    name, arguments = call_of(call)
    # Only what would run is asked about.
    wrong = toolbox.refuse(name, arguments)
    if wrong is not None:
        return error_text(wrong)
    if allow is not None and not allow(name, arguments):
        return error_text("the user did not allow this call")
    return toolbox.run(name, arguments)


class _Room:
    """What the context has room for, so that a turn whose tools have run does not end for it."""

    def __init__(self, lm: LM, toolbox: Toolbox, settings: ChatSettings) -> None:
        self._lm, self._toolbox = lm, toolbox
        self._variables = settings.variables
        self._overflow = settings.params.overflow
        self._context = context_length(lm.config)
        wanted = settings.params.max_tokens
        least = self._context // _ANSWERS_SHARE
        self._answer = least if wanted is None else min(wanted, least)

    def fitted(
        self,
        message: dict[str, Any],
        before: Sequence[Mapping[str, Any]],
        waiting: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """A tool's message; an error in its place where it is too long.

        waiting: the shortest that may follow it.
        """
        assert self._lm.tokenizer is not None
        length = len(self._lm.tokenizer.encode(message["content"]))
        limit = self._context // 2
        if length > limit:
            error = f"the result has {length} tokens, which is too long: at most {limit}"
        elif self._overflow == "slide" or self._fits([*before, message, *waiting]):
            return message
        else:
            error = f"the result has {length} tokens: {_NO_ROOM}"
        return {**message, "content": error_text(error)}

    def _fits(self, chat: Sequence[Mapping[str, Any]]) -> bool:
        tools = self._toolbox if len(self._toolbox) else None
        if self._overflow != "drop-oldest-turn":
            prompt = self._lm.chat_prompt(chat, tools, **self._variables)
            return len(prompt) + self._answer <= self._context
        try:
            prompt, _ = self._lm.fit_chat(chat, tools, max_tokens=self._answer, **self._variables)
        except GenerationError:
            return False
        return len(prompt) + self._answer <= self._context

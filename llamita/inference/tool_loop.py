"""The loop of a model with tools: it calls, the tools run, it reads their results and answers.

new = run_tools(lm, messages, Toolbox.load("builtin"), temperature=0)
messages += new
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from llamita.inference.param_checks import integer
from llamita.inference.results import Generation
from llamita.inference.stopping import context_length
from llamita.tools.results import error_text
from llamita.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from llamita.inference.lm import LM

DEFAULT_MAX_STEPS = 8

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
    one that is not allowed get an error as their result, as does a result that would take more than
    half of the context, and the model goes on. So often as `max_steps` it may call; the answer
    after that is without calls. An answer that max_tokens or the context cuts off is the last.

    allow: asked before a tool runs; None: all may. on_event: told what happens. The settings are
    those of `lm.chat`; tool_choice is for the first answer, later ones are free.

    Raises:
        GenerationError: as `lm.chat`.
    """
    integer("max_steps", max_steps, "0 or more", 0)
    tell = on_event or (lambda event: None)
    new: list[dict[str, Any]] = []
    choice = settings.pop("tool_choice", "auto")
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
        generation = stream.generation
        assert generation is not None
        message = generation.message
        assert message is not None
        new.append(message)
        tell(LoopEvent("message", message=message, generation=generation))
        results = [] if is_last else _results(lm, generation, toolbox, allow)
        for result in map(partial(_shortened, lm), results):
            new.append(result)
            tell(LoopEvent("message", message=result))
        if not results:
            break
        choice = "auto"
    return new


def call_of(call: Mapping[str, Any]) -> tuple[str, Any]:
    """The name and the arguments of a call in OpenAI's form; arguments that are no JSON as text."""
    function = call["function"]
    arguments = function["arguments"]
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return function["name"], arguments
    return function["name"], arguments


def tool_message(call: Mapping[str, Any], content: str) -> dict[str, Any]:
    """The message that answers a call."""
    name = call["function"]["name"]
    return {"role": "tool", "tool_call_id": call["id"], "name": name, "content": content}


def _results(
    lm: LM, generation: Generation, toolbox: Toolbox, allow: Allow | None
) -> list[dict[str, Any]]:
    """The messages that answer what the model called, or what it began as a call."""
    if generation.tool_calls:
        return [_run(call, toolbox, allow) for call in generation.tool_calls]
    if not len(toolbox) or generation.finish_reason == "length":
        return []
    content = (generation.message or {}).get("content") or ""
    broken = lm.chat_format.broken_call(content)
    return [] if broken is None else [{"role": "tool", "content": error_text(broken)}]


def _shortened(lm: LM, message: dict[str, Any]) -> dict[str, Any]:
    """A tool's message; where it would take most of the context, an error in its place."""
    assert lm.tokenizer is not None
    length = len(lm.tokenizer.encode(message["content"]))
    limit = context_length(lm.config) // 2
    if length <= limit:
        return message
    error = f"the result has {length} tokens, which is too long: at most {limit}"
    return {**message, "content": error_text(error)}


def _run(call: Mapping[str, Any], toolbox: Toolbox, allow: Allow | None) -> dict[str, Any]:
    name, arguments = call_of(call)
    # Only what would run is asked about.
    wrong = toolbox.refuse(name, arguments)
    if wrong is not None:
        return tool_message(call, error_text(wrong))
    if allow is not None and not allow(name, arguments):
        return tool_message(call, error_text("the user did not allow this call"))
    return tool_message(call, toolbox.run(name, arguments))

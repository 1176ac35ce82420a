"""What a chat template is like, found by letting it write small conversations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from llamita.errors import TokenizerError
from llamita.tokenizer.chat_sandbox import render_template

ContentForm = Literal["text", "parts", "both"]
_QUESTION, _ANSWER = "llamita asks", "llamita answers"


@lru_cache(maxsize=64)
def content_form(template: str, variables: tuple[tuple[str, str], ...]) -> ContentForm:
    """Whether content must be a text, a list of parts, or may be either."""
    values = dict(variables)
    text = _try(template, [{"role": "user", "content": _QUESTION}], values)
    parts = _try(
        template, [{"role": "user", "content": [{"type": "text", "text": _QUESTION}]}], values
    )
    if text is not None and _QUESTION in text:
        return "both" if text == parts else "text"
    return "parts" if parts is not None and _QUESTION in parts else "text"


def turn_ends(
    template: str, tool_template: str, variables: Mapping[str, Any], control: re.Pattern[str]
) -> list[str]:
    """The control tokens, found by `control`, that end an answer, and a tool call if otherwise."""
    form = content_form(template, tuple(sorted(variables.items())))
    ends = control.findall(text_after_answer(template, form, variables))[:1]
    form = content_form(tool_template, tuple(sorted(variables.items())))
    after_call = control.findall(text_after_tool_call(tool_template, form, variables) or "")
    # The last one: others close the call. But a template may write an end of text behind all.
    return ends if set(ends) & set(after_call) else [*ends, *after_call[-1:]]


def text_after_answer(template: str, form: ContentForm, variables: Mapping[str, Any]) -> str:
    """What a template writes after an answer that ends the conversation.

    Raises TokenizerError where the template cannot write a question and its answer.
    """
    messages = [_message("user", _QUESTION, form), _message("assistant", _ANSWER, form)]
    text = render_template(template, {"messages": messages, **variables})
    _before, found, after = text.rpartition(_ANSWER)
    if not found:
        raise TokenizerError("the chat template does not write what the assistant answers.")
    return after


def text_after_tool_call(
    template: str, form: ContentForm, variables: Mapping[str, Any]
) -> str | None:
    """What a template writes after a tool call that ends the conversation; None: it writes none."""
    function = {"name": "probe", "arguments": {"text": _ANSWER}}
    call = {"id": "probe0000", "type": "function", "function": function}
    messages = [
        _message("user", _QUESTION, form),
        {**_message("assistant", "", form), "tool_calls": [call]},
    ]
    text = _try(template, messages, {**variables, "tools": [{"type": "function", **call}]})
    _before, found, after = (text or "").rpartition(_ANSWER)
    return after if found else None


def _message(role: str, text: str, form: ContentForm) -> dict[str, Any]:
    content = [{"type": "text", "text": text}] if form == "parts" else text
    return {"role": role, "content": content}


def _try(template: str, messages: list[Any], variables: Mapping[str, Any]) -> str | None:
    try:
        return render_template(
            template, {"add_generation_prompt": False, "messages": messages, **variables}
        )
    except TokenizerError:
        return None

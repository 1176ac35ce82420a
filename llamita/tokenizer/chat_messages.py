"""Messages and tools as people give them, checked and brought into the form that templates expect.

The form is OpenAI's: messages with a role and a content that is a text or a list of text parts;
tool calls whose arguments are objects (OpenAI's are JSON text; templates want to write them).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llamita.errors import TokenizerError
from llamita.tokenizer.chat_blocks import has_blocks
from llamita.tokenizer.chat_tools import described, normal_call, parse_tool_calls

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
_REASONING = ("reasoning_content", "thinking", "reasoning")
_MAX_DEPTH = 100


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """Plain copies of the messages, in the form above.

    Keys whose value is None are dropped, as `transformers` does. Raises TokenizerError, naming the
    message, for a wrong role or content, and for parts that are no text.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise TokenizerError(
            f"the messages are {_short(messages)}.",
            hint='A chat is a list such as [{"role": "user", "content": "Hello"}].',
        )
    if not messages:
        raise TokenizerError("the list of messages is empty.", hint="Give at least one message.")
    return [_check_message(message, f"message {index}") for index, message in enumerate(messages)]


def check_tools(tools: Any) -> list[dict[str, Any]] | None:
    """Plain copies of the tools; None for None and for an empty list."""
    if tools is None:
        return None
    if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
        raise TokenizerError(f"tools is {_short(tools)}.", hint="Give a list of tool descriptions.")
    checked = []
    for index, tool in enumerate(tools):
        function = described(tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise TokenizerError(
                f"tool {index} is {_short(tool)}.",
                hint='A tool is {"type": "function", "function": {"name": …, "description": …, '
                '"parameters": {…}}}, or the inner object alone.',
            )
        checked.append(plain_data(tool, f"tool {index}"))
    return checked or None


def join_parts(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its content as one text."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": "".join(part["text"] for part in content)}


def join_blocks(message: dict[str, Any]) -> dict[str, Any]:
    """An assistant message whose parts may hold `<think>` or `<tool_call>` blocks, as one text."""
    joined = join_parts(message) if message["role"] == "assistant" else message
    content = joined.get("content")
    return joined if isinstance(content, str) and has_blocks(content) else message


def split_into_parts(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its content as a list of parts."""
    content = message.get("content")
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


def in_form(messages: list[dict[str, Any]], form: str) -> list[dict[str, Any]]:
    """The messages with their contents as a template takes them: "text", "parts" or "both"."""
    if form == "both":
        return messages
    return [(join_parts if form == "text" else split_into_parts)(message) for message in messages]


def lift_tool_calls(message: dict[str, Any]) -> dict[str, Any]:
    """An assistant message whose text ends in `<tool_call>` tags, with the calls as calls.

    Fine-tuning data is written so. What the calls mean is kept, not how they are spelled: the
    template writes them as it writes any call (spaces, the order of keys, 1.0 or 1).
    """
    content = message.get("content")
    if message["role"] != "assistant" or "tool_calls" in message:
        return message
    if not isinstance(content, str) or "<tool_call>" not in content:
        return message
    if not content.rstrip().endswith("</tool_call>"):
        return message
    before, tag, tail = content.partition("<tool_call>")
    text, calls = parse_tool_calls(tag + tail, "hermes")
    if text or not calls:
        return message
    lifted = [normal_call(call, "a tool call") for call in calls]
    return {**message, "content": before.rstrip("\n"), "tool_calls": _without_ids(lifted)}


def lift_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """An assistant message that begins with `<think>…</think>`, with that as reasoning_content."""
    content = message.get("content")
    if message["role"] != "assistant" or "reasoning_content" in message:
        return message
    if not isinstance(content, str) or "</think>" not in content:
        return message
    reasoning, _, answer = content.rpartition("</think>")
    reasoning = reasoning.partition("</think>")[0].rstrip("\n").rpartition("<think>")[2]
    return {
        **message,
        "reasoning_content": reasoning.lstrip("\n"),
        "content": answer.lstrip("\n"),
    }


def _check_message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TokenizerError(
            f"{where} is {_short(message)}.", hint="A message is an object with role and content."
        )
    role = message.get("role")
    if role not in ROLES:
        raise TokenizerError(
            f"{where} has the role {_short(role)}.", hint=f"Roles are: {', '.join(ROLES)}."
        )
    checked: dict[str, Any] = {
        key: plain_data(value, f"{key} of {where}")
        for key, value in message.items()
        if value is not None and key not in ("content", "tool_calls")
    }
    calls = message.get("tool_calls")
    if message.get("content") is not None:
        checked["content"] = _check_content(message["content"], where)
    elif not calls and not any(key in checked for key in _REASONING):
        raise TokenizerError(f"{where} ({role}) has no content.", hint="Give a text; it may be ''.")
    if calls is not None:
        if role != "assistant":
            raise TokenizerError(f"{where} has tool_calls, but its role is {role}.")
        if not isinstance(calls, list | tuple):
            raise TokenizerError(f"tool_calls of {where} is {_short(calls)}.", hint="Give a list.")
        checked["tool_calls"] = [
            plain_data(normal_call(call, f"tool call {index} of {where}"), where)
            for index, call in enumerate(calls)
        ]
    reasoning = next((checked[key] for key in _REASONING if key in checked), None)
    if reasoning is not None:
        checked = {"thinking": reasoning, **checked, "reasoning_content": reasoning}
    return checked


def _check_content(content: Any, where: str) -> str | list[dict[str, str]]:
    if isinstance(content, str):
        return str(content)
    if isinstance(content, Mapping) or not isinstance(content, Sequence):
        raise TokenizerError(
            f"the content of {where} is {_short(content)}.",
            hint="Content is a text, or a list of parts such as {'type': 'text', 'text': …}.",
        )
    parts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            named = f"a part of type {kind!r}" if isinstance(kind, str) else f"{_short(part)}"
            raise TokenizerError(
                f"the content of {where} holds {named}; llamita's models read text alone.",
                hint="Give parts of the form {'type': 'text', 'text': …}.",
            )
        parts.append({"type": "text", "text": part["text"]})
    return parts


def plain_data(value: Any, where: str, depth: int = 0) -> Any:
    """A copy made of JSON data alone: templates see no objects with methods of their own.

    Raises TokenizerError, naming `where`, for anything else.
    """
    if depth > _MAX_DEPTH:
        raise TokenizerError(f"{where} is nested more than {_MAX_DEPTH} deep.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): plain_data(item, where, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item, where, depth + 1) for item in value]
    raise TokenizerError(
        f"{where} holds {_short(value)}.", hint="Messages and tools are made of JSON data."
    )


def _without_ids(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in call.items() if key != "id"} for call in calls]


def _short(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = f"of the type {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."

"""Chats in JSONL: one conversation a line, `{"messages": […], "tools": […]?}`, as OpenAI has them.

Here they are data; how they become tokens is told by `tokenizer/chat.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MESSAGES = "messages"


@dataclass(frozen=True)
class Chat:
    """One conversation as it stands in a file: its messages and, where it has any, its tools."""

    messages: list[Any]
    tools: list[Any] | None = None

    @property
    def text(self) -> str:
        """What is said in it, without who says it."""
        return "\n".join(text for text in _texts(self.messages, self.tools) if text)

    def mapped(self, change: Callable[[str], str]) -> Chat:
        """The chat with every text in it changed, names of fields but not."""
        tools = None if self.tools is None else _mapped(self.tools, change)
        return Chat(_mapped(self.messages, change), tools)


def read_chat(line: Mapping[str, Any]) -> Chat | None:
    """The chat in a JSON object, or None where it is none."""
    messages, tools = line.get(MESSAGES), line.get("tools")
    if not isinstance(messages, list) or not (tools is None or isinstance(tools, list)):
        return None
    return Chat(messages, tools)


def _texts(messages: list[Any], tools: list[Any] | None) -> Iterator[str]:
    for tool in tools or []:
        yield json.dumps(tool, ensure_ascii=False)
    for message in messages:
        if not isinstance(message, dict):
            continue  # it is refused where it becomes tokens
        for name, value in message.items():
            if name == "role":
                continue
            if isinstance(value, str):
                yield value
            elif name == "content" and isinstance(value, list):
                yield from (part["text"] for part in value if _is_text(part))
            elif value is not None:
                yield json.dumps(value, ensure_ascii=False)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    return value

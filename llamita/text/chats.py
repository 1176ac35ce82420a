"""Chats in JSONL: one conversation a line, in any of the forms that people have them in.

Here they are data; how they become tokens is told by `tokenizer/chat.py`. The forms are told apart
by their keys, line by line (`text/chat_kinds.py`), and all become OpenAI's: `messages` and `tools`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llamita.errors import DataError, TokenizerError
from llamita.text.chat_kinds import EXPECTED, KINDS, kinds_of
from llamita.tokenizer.chat_messages import check_messages, check_tools

MESSAGES = "messages"
_SAID = ("content", "tool_calls", "reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True)
class Chat:
    """One conversation: its messages and, where it has any, its tools, as OpenAI's API has them."""

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


def read_chat(line: Mapping[str, Any], place: str = "the line") -> Chat | None:
    """The chat in a JSON object; None where its keys are not those of one.

    Raises:
        DataError: it has a chat's keys, but is none, or the assistant says nothing in it; the
            message begins with `place`.
    """
    kinds = kinds_of(line)
    if not kinds:
        return None
    if len(kinds) > 1:
        raise DataError(
            f"{place} is a chat in two forms at once: it has {' and '.join(kinds)}.",
            hint=f"Leave one of them in each line. {EXPECTED}",
        )
    try:
        messages, tools = KINDS[kinds[0]](line)
        checked = check_messages(messages)
        check_tools(tools)
    except TokenizerError as error:
        raise DataError(f"{place}: {error.message}", hint=error.hint) from error
    if not any(_speaks(message) for message in checked):
        raise DataError(
            f"{place} is a chat in which the assistant says nothing.",
            hint="Each conversation needs a message of the assistant, with a text or a tool call.",
        )
    return Chat(messages, tools)


def _speaks(message: Mapping[str, Any]) -> bool:
    return message["role"] == "assistant" and any(message.get(name) for name in _SAID)


def _texts(messages: list[Any], tools: list[Any] | None) -> Iterator[str]:
    for tool in tools or []:
        yield json.dumps(tool, ensure_ascii=False)
    for message in messages:
        for name, value in message.items():
            if name == "role":
                continue
            if isinstance(value, str):
                yield value
            elif name == "content" and isinstance(value, list):
                yield from (part["text"] for part in value)
            elif value is not None:
                yield json.dumps(value, ensure_ascii=False)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    return value

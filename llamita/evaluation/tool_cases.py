"""Chats with the right calls in them, as cases: what stood before, and what should come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from llamita.errors import DataError
from llamita.files import parse_json
from llamita.text.chat_kinds import EXPECTED
from llamita.text.chats import read_chat
from llamita.text.decoding import read_text
from llamita.text.sources import find_text_files
from llamita.tokenizer.chat_messages import check_messages, lift_tool_calls

Call: TypeAlias = tuple[str, Mapping[str, Any]]
"""The name of a tool and the arguments."""

KINDS = "kinds"
"""Where a line of a file says the kind of task of each of the user's messages."""


@dataclass(frozen=True)
class ToolCase:
    """A place where the assistant should call tools, or answer without (`calls` is empty).

    messages: all before that place. tools: as they stand in the file. conversation: its number:
    cases of one are not independent. kind: of task, where the file says it, else the tools called.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    calls: tuple[Call, ...]
    kind: str
    conversation: int
    place: str


def read_tool_cases(paths: Sequence[Path]) -> list[ToolCase]:
    """The cases of files of chats, in any form that `finetune` reads.

    Each turn of the assistant that calls is a case, and each that answers a user's message without
    a call; what it says to a tool's result is none.

    Raises:
        DataError: a line is no chat, or there is no case at all.
    """
    cases: list[ToolCase] = []
    conversation = 0
    for file in find_text_files(paths).files:
        if file.kind != "jsonl":
            raise DataError(f"{file} is no JSONL file.", hint="Chats are one object a line.")
        text = "".join(read_text(file))
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                place = f"{file}:{number}"
                value = parse_json(line, place, DataError)
                cases += _cases(value, place, conversation)
                conversation += 1
    if not cases:
        names = ", ".join(map(str, paths))
        raise DataError(f"there is no turn of an assistant to evaluate in {names}.")
    return cases


def _cases(line: Any, place: str, conversation: int) -> Iterator[ToolCase]:
    chat = read_chat(line, place) if isinstance(line, dict) else None
    if chat is None:
        raise DataError(f"{place} is no chat.", hint=EXPECTED)
    messages = [lift_tool_calls(message) for message in check_messages(chat.messages)]
    kinds = line.get(KINDS)
    asked = 0
    for at, message in enumerate(messages):
        asked += message["role"] == "user"
        if message["role"] != "assistant" or at == 0:
            continue
        calls = tuple(
            (call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls", ())
        )
        if not calls and messages[at - 1]["role"] != "user":
            continue
        names = " and ".join(dict.fromkeys(name for name, _ in calls)) or "no call"
        is_told = isinstance(kinds, list) and 0 < asked <= len(kinds)
        kind = str(kinds[asked - 1]) if is_told else names
        yield ToolCase(messages[:at], chat.tools, calls, kind, conversation, place)

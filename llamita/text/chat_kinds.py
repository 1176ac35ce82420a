"""The forms in which people write chats, each read into OpenAI's messages and tools.

| kind | keys of a line |
|---|---|
| Hermes, OpenAI | `messages` of role and content; `tools`, or OpenAI's older `functions` |
| ShareGPT | `conversations` of `from` and `value`; `system`, `tools` (a list, or its JSON text) |
| Alpaca | `instruction`, `input`, `output`; `system`, `history` of (question, answer) pairs |

A key whose value is null counts as missing: tables with columns of several kinds are written so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from llamita.errors import TokenizerError

Messages = list[dict[str, Any]]
Line = Mapping[str, Any]

EXPECTED = (
    'A chat is {"messages": [{"role": …, "content": …}, …]} (Hermes, OpenAI), {"conversations": '
    '[{"from": …, "value": …}, …]} (ShareGPT) or {"instruction": …, "output": …} (Alpaca).'
)
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
    "function_call": "assistant",
}
_OTHER_MEDIA = ("images", "image", "videos", "video", "audios", "audio")
_RESPONSE = re.compile(r"\s*<tool_response>(.*?)</tool_response>\s*", re.DOTALL)


def kinds_of(line: Line) -> list[str]:
    """The keys of chats that a line has: none, the one that tells its kind, or several."""
    return [key for key in KINDS if line.get(key) is not None]


def _openai(line: Line) -> tuple[Any, list[Any] | None]:
    """`messages` as they are, but for the calls of OpenAI's older `function_call`."""
    _refuse_other_media(line)
    tools = _tools(line, "tools")
    functions = _tools(line, "functions")
    if tools and functions:
        raise TokenizerError("it has both tools and functions.", hint="Leave one of them out.")
    messages = line["messages"]
    if not isinstance(messages, list):
        raise TokenizerError(f"messages is {_short(messages)}, which is no list.", hint=EXPECTED)
    plain = [_without_function_call(message) for message in messages]
    return [one for message in plain for one in _unwrapped(message)], tools or functions


def _unwrapped(message: Any) -> list[Any]:
    """A tool's message, or several where one text holds the answers of several tools, without the
    tags of Hermes around them: the chat format has its own."""
    if not isinstance(message, dict) or message.get("role") != "tool":
        return [message]
    content = message.get("content")
    if not isinstance(content, str):
        return [message]
    texts = _responses(content)
    if len(texts) > 1:  # one call's id is not that of all
        message = {key: value for key, value in message.items() if key != "tool_call_id"}
    return [{**message, "content": text} for text in texts]


def _without_function_call(message: Any) -> Any:
    if not isinstance(message, dict) or "function_call" not in message:
        return message
    rest = {key: value for key, value in message.items() if key != "function_call"}
    call = message["function_call"]
    if call is None:
        return rest
    if message.get("tool_calls"):
        raise TokenizerError(
            "a message has both tool_calls and function_call.", hint="Leave one of them out."
        )
    return {**rest, "tool_calls": [{"type": "function", "function": call}]}


def _sharegpt(line: Line) -> tuple[Messages, list[Any] | None]:
    _refuse_other_media(line)
    turns = line["conversations"]
    if not isinstance(turns, list):
        raise TokenizerError(f"conversations is {_short(turns)}, which is no list.", hint=EXPECTED)
    messages: Messages = []
    for index, turn in enumerate(turns):
        messages += _of_turn(turn, f"turn {index}")
    return _with_system(messages, line.get("system")), _tools(line, "tools")


def _of_turn(turn: Any, where: str) -> Messages:
    """The messages of one turn; several where it holds the answers of several tools."""
    if not isinstance(turn, dict) or not {"from", "value"} <= turn.keys():
        if isinstance(turn, dict) and "role" in turn:
            return _unwrapped(_without_function_call(turn))
        raise TokenizerError(
            f"{where} is {_short(turn)}.",
            hint='A turn is {"from": "human" or "gpt", "value": the text}.',
        )
    speaker, value = turn["from"], turn["value"]
    if speaker not in _ROLES:
        raise TokenizerError(
            f"{where} is from {_short(speaker)}.", hint=f"Turns are from: {', '.join(_ROLES)}."
        )
    role = _ROLES[speaker]
    if speaker == "function_call":
        return [{"role": role, "content": "", "tool_calls": _calls(value, where)}]
    if role == "tool" and isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        raise TokenizerError(f"the value of {where} is {_short(value)}.", hint="Give a text.")
    texts = _responses(value) if role == "tool" else [value]
    weight = {"weight": turn["weight"]} if "weight" in turn else {}
    return [{"role": role, "content": text, **weight} for text in texts]


def _responses(text: str) -> list[str]:
    """What tools answered, without the tags around it: the chat format has its own."""
    found = list(_RESPONSE.finditer(text))
    if not found or "".join(match[0] for match in found) != text:
        return [text]
    return [match[1].strip("\n") for match in found]


def _calls(value: Any, where: str) -> list[dict[str, Any]]:
    """A call or a list of calls, or the JSON text of them."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise TokenizerError(
                f"the function_call of {where} is no JSON: {error}.",
                hint='It is {"name": …, "arguments": {…}}, or a list of such.',
            ) from error
    calls = value if isinstance(value, list) else [value]
    return [
        {"type": "function", "function": call}
        if isinstance(call, dict) and "function" not in call
        else call
        for call in calls
    ]


def _alpaca(line: Line) -> tuple[Messages, None]:
    _refuse_other_media(line)
    if line.get("tools"):
        raise TokenizerError("it has tools, for which Alpaca's form has no calls.", hint=EXPECTED)
    texts = {}
    for key in ("instruction", "input", "output"):
        value = line.get(key)
        if value is None and key != "output":
            value = ""
        if not isinstance(value, str):
            what = "has no output" if value is None else f"has the {key} {_short(value)}"
            raise TokenizerError(
                f"it {what}.", hint='Alpaca\'s form is {"instruction", "input", "output"}: texts.'
            )
        texts[key] = value
    messages: Messages = []
    history = line.get("history") or []
    for pair in history if isinstance(history, list) else [history]:
        if not isinstance(pair, list) or [type(text) for text in pair] != [str, str]:
            raise TokenizerError(
                f"its history holds {_short(pair)}.", hint="It is a list of [question, answer]."
            )
        messages += _pair(*pair)
    question = "\n".join(text for text in (texts["instruction"], texts["input"]) if text)
    return _with_system([*messages, *_pair(question, texts["output"])], line.get("system")), None


def _pair(question: str, answer: str) -> Messages:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _with_system(messages: Messages, system: Any) -> Messages:
    if system is None or system == "":
        return messages
    if not isinstance(system, str):
        raise TokenizerError(f"its system is {_short(system)}.", hint="Give a text.")
    first = {"role": "system", "content": system}
    if messages and messages[0].get("role") == "system":
        if messages[0].get("content") == system:
            return messages
        raise TokenizerError(
            "it has a system text, and its conversation begins with another one.",
            hint="Leave one of them out.",
        )
    return [first, *messages]


def _tools(line: Line, key: str) -> list[Any] | None:
    """A list of tools, or its JSON text, as ShareGPT's tables have it."""
    tools = line.get(key)
    if isinstance(tools, str):
        if not tools.strip():
            return None
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise TokenizerError(
                f"its {key} are a text that is no JSON: {error}.", hint="Give a list of tools."
            ) from error
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise TokenizerError(
            f"its {key} are {_short(tools)}.", hint="Give a list of tools, or its JSON text."
        )
    return tools or None


def _refuse_other_media(line: Line) -> None:
    for key in _OTHER_MEDIA:
        if line.get(key):
            raise TokenizerError(f"it has {key}; llamita's models read text alone.")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


KINDS: dict[str, Callable[[Line], tuple[Any, list[Any] | None]]] = {
    "messages": _openai,
    "conversations": _sharegpt,
    "instruction": _alpaca,
}
"""How a line is read, by the key that tells its kind; TokenizerError says what is wrong in it."""

"""Tool calls as models write them, and the OpenAI form in which programs hold them.

Three ways of writing are known, told by the template: Hermes and Qwen wrap each call into
`<tool_call>` tags; Llama 3 answers with a bare object that has `parameters`; others with a bare
object, or a list of objects, that have `arguments`.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, Literal

from llamita.errors import TokenizerError

Syntax = Literal["hermes", "llama3", "json"]

_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_PREFIXES = ("<|python_tag|>", "[TOOL_CALLS]")
_SEPARATORS = " \t\r\n;,"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def tool_syntax(literals: tuple[str, ...], variables: frozenset[str]) -> Syntax | None:
    """How calls are written under a template with these literal texts; None: it knows no tools."""
    text = "\0".join(literals)
    if "<tool_call>" in text:
        return "hermes"
    if '"parameters": ' in text or "<|python_tag|>" in text:
        return "llama3"
    return "json" if "tools" in variables or "tool_calls" in text else None


def format_tool_call(call: Mapping[str, Any], syntax: Syntax) -> str:
    """A call, in OpenAI's form or as {name, arguments}, as a model writes it."""
    plain = normal_call(call, "the tool call")["function"]
    name = json.dumps(plain["name"], ensure_ascii=False)
    arguments = json.dumps(plain["arguments"], ensure_ascii=False)
    key = "parameters" if syntax == "llama3" else "arguments"
    body = f'{{"name": {name}, "{key}": {arguments}}}'
    return f"<tool_call>{body}</tool_call>" if syntax == "hermes" else body


def parse_tool_calls(text: str, syntax: Syntax) -> tuple[str, list[dict[str, Any]]]:
    """The text beside the calls, and the calls in OpenAI's form (`arguments` is JSON text).

    What is no call, or no valid JSON, stays in the text: a model's mistake is no error.
    """
    found = _parse_tagged(text) if syntax == "hermes" else _parse_bare(text)
    if found is None:
        return text, []
    content, functions = found
    return content, [
        {
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": json.dumps(arguments, ensure_ascii=False),
            },
        }
        for name, arguments in functions
    ]


def is_call(text: str) -> bool:
    """Whether a text is the JSON of one call, as it stands in `<tool_call>` tags."""
    return _function(_load(text), "arguments") is not None


def normal_call(call: Any, where: str) -> dict[str, Any]:
    """A call in the form that templates expect: OpenAI's, with `arguments` as an object.

    Raises TokenizerError, naming `where`, for what is no call.
    """
    if not isinstance(call, Mapping):
        raise TokenizerError(f"{where} is {call!r}, which is no tool call.")
    function = call.get("function", call)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise TokenizerError(
            f"{where} has no name.",
            hint='A tool call is {"type": "function", "function": {"name": …, "arguments": {…}}}.',
        )
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise TokenizerError(
                f"the arguments of {where} ({function['name']}) are no JSON: {error}.",
                hint="A call that the model wrote wrongly belongs into the message's content.",
            ) from error
    if not isinstance(arguments, Mapping):
        raise TokenizerError(
            f"the arguments of {where} ({function['name']}) are {arguments!r}.",
            hint="They must be an object, or its JSON text.",
        )
    if "function" in call:
        return {**call, "function": {**function, "arguments": dict(arguments)}}
    plain = {"name": function["name"], "arguments": dict(arguments)}
    return {"type": "function", "function": plain}


def _parse_tagged(text: str) -> tuple[str, list[tuple[str, Any]]] | None:
    functions: list[tuple[str, Any]] = []
    kept: list[str] = []
    end = 0
    for match in _TAGGED.finditer(text):
        call = _function(_load(match[1]), "arguments")
        if call is None:
            continue
        functions.append(call)
        kept.append(text[end : match.start()])
        end = match.end()
    if not functions:
        return None
    kept.append(text[end:])
    return "\n".join(part.strip() for part in kept if part.strip()), functions


def _parse_bare(text: str) -> tuple[str, list[tuple[str, Any]]] | None:
    """Nothing but calls, one after the other or as a list, after an optional sign for calls."""
    content, rest = "", text.strip()
    for prefix in _PREFIXES:
        before, sign, after = rest.partition(prefix)
        if sign:
            content, rest = before.strip(), after.strip()
    functions: list[tuple[str, Any]] = []
    place = 0
    while place < len(rest):
        try:
            value, end = _DECODER.raw_decode(rest, place)
            json.dumps(value, ensure_ascii=False).encode()  # lone surrogates are no text
        except (ValueError, RecursionError):
            return None
        place = end
        calls = value if isinstance(value, list) else [value]
        for call in calls:
            function = _function(call, "parameters") or _function(call, "arguments")
            if function is None:
                return None
            functions.append(function)
        while place < len(rest) and rest[place] in _SEPARATORS:
            place += 1
    return (content, functions) if functions else None


def _function(value: Any, key: str) -> tuple[str, Any] | None:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get(key)
    if isinstance(arguments, str):
        arguments = _load(arguments)
    return (value["name"], arguments) if isinstance(arguments, dict) else None


def _load(text: str) -> Any:
    try:
        value = _DECODER.decode(text)
        json.dumps(value, ensure_ascii=False).encode()  # lone surrogates are no text
        return value
    except (ValueError, RecursionError):
        return None

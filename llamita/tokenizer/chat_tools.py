"""Tool calls as models write them, and the OpenAI form in which programs hold them.

Three ways of writing are known, told by the template: Hermes and Qwen wrap each call into
`<tool_call>` tags; Llama 3 answers with a bare object that has `parameters`; others with a bare
object, or a list of objects, that have `arguments`.
"""

from __future__ import annotations

import json
import re
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from llamita.errors import TokenizerError
from llamita.tokenizer.chat_json import DECODER, decode_json

Syntax = Literal["hermes", "llama3", "json"]

CALL_TAGS = ("<tool_call>", "</tool_call>")
CALL_SIGNS = ("<|python_tag|>", "[TOOL_CALLS]")
"""What may stand in front of calls that are bare objects."""

_WANTED = {"hermes": "arguments", "llama3": "parameters", "json": "arguments"}
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_SPACE = re.compile(r"\s*")
_CLOSING = re.compile(r"\s*(?:</tool_call>|\Z)")
_SIGN = re.compile("|".join(map(re.escape, CALL_SIGNS)))
_WHITE_SPACE = " \t\r\n"  # JSON's
_SEPARATORS = _WHITE_SPACE + ";,"
_BEGINNINGS = ('{"name"', '{"function"', '{"type":"function"')


def tool_syntax(literals: tuple[str, ...], variables: frozenset[str]) -> Syntax | None:
    """How calls are written under a template with these literal texts; None: it knows no tools."""
    text = "\0".join(literals)
    if "<tool_call>" in text:
        return "hermes"
    if '"parameters": ' in text or "<|python_tag|>" in text:
        return "llama3"
    return "json" if "tools" in variables or "tool_calls" in text else None


def arguments_key(syntax: Syntax) -> str:
    """Under which name a call written so holds its arguments."""
    return _WANTED[syntax]


def described(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Name, description and parameters of a tool, or name and arguments of a call.

    They are OpenAI's inner object, which people also write alone.
    """
    inner: Mapping[str, Any] = tool.get("function", tool)
    return inner


def parameters_of(function: Mapping[str, Any]) -> Any:
    """The schema of the arguments; no parameters are OpenAI's way to say that there are none."""
    parameters = function.get("parameters")
    return {"type": "object", "properties": {}} if parameters is None else parameters


def format_tool_call(call: Mapping[str, Any], syntax: Syntax) -> str:
    """A call, in OpenAI's form or as {name, arguments}, as a model writes it."""
    plain = normal_call(call, "the tool call")["function"]
    name = json.dumps(plain["name"], ensure_ascii=False)
    arguments = json.dumps(plain["arguments"], ensure_ascii=False)
    body = f'{{"name": {name}, "{arguments_key(syntax)}": {arguments}}}'
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
            "id": new_call_id(),
            "type": "function",
            "function": {
                "name": name,
                "arguments": json.dumps(arguments, ensure_ascii=False),
            },
        }
        for name, arguments in functions
    ]


def new_call_id() -> str:
    """An id by which a result is told to belong to a call."""
    return f"call_{uuid.uuid4().hex[:24]}"


def is_call(text: str) -> bool:
    """Whether a text is the JSON of one call, as it stands in `<tool_call>` tags."""
    return _function(_load(text), "arguments") is not None


def normal_call(call: Any, where: str) -> dict[str, Any]:
    """A call in the form that templates expect: OpenAI's, with `arguments` as an object.

    Raises TokenizerError, naming `where`, for what is no call.
    """
    if not isinstance(call, Mapping):
        raise TokenizerError(f"{where} is {call!r}, which is no tool call.")
    function = described(call)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise TokenizerError(
            f"{where} has no name.",
            hint='A tool call is {"type": "function", "function": {"name": …, "arguments": {…}}}.',
        )
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = decode_json(arguments or "{}")
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


def broken_call(text: str, syntax: Syntax) -> str | None:
    """What is wrong with an answer that begins a call and is none; None where that is not so."""
    if parse_tool_calls(text, syntax)[1]:
        return None
    if syntax == "hermes":
        begun = _TAGGED.search(text)
        body = begun[1] if begun else None
    else:
        sign = _first_sign(text)
        body = sign[1] if sign else text if _begins_bare(text) else None
    if body is None:
        return None
    try:
        decode_json(body.strip())
    except (ValueError, RecursionError) as error:
        return f"the call is no valid JSON: {error}"
    return f'a call is {{"name": a text, "{arguments_key(syntax)}": an object}}'


def before_calls(text: str, syntax: Syntax) -> str:
    """What stands before the first call that a text begins: of an answer that was cut off."""
    signs = CALL_TAGS[:1] if syntax == "hermes" else CALL_SIGNS
    begun = [text.index(sign) for sign in signs if sign in text]
    if begun:
        return text[: min(begun)].rstrip()
    if syntax != "hermes" and _begins_bare(text):
        return ""
    for sign in signs:
        for length in range(len(sign) - 1, 1, -1):  # one character alone is no sign
            if text.endswith(sign[:length]):
                return text[:-length].rstrip()
    return text


def _begins_bare(text: str) -> bool:
    """Whether an answer begins as a bare call does, as far as it goes."""
    begun = re.sub(r"\s", "", text[:200]).removeprefix("[")
    return begun != "" and any(
        begun.startswith(beginning) or beginning.startswith(begun) for beginning in _BEGINNINGS
    )


def reasoning_end(text: str, syntax: Syntax | None) -> int | None:
    """Where the reasoning before an answer ends; a `</think>` within a call ends none."""
    ends = [match.end() for match in re.finditer("</think>", text)]
    if syntax == "hermes":
        edges = [edge for start, end, _ in _tagged_calls(text) for edge in (start, end)]
        ends = [end for end in ends if bisect_left(edges, end) % 2 == 0]  # within none of them
    elif syntax is not None:
        signs = [match.end() for match in _SIGN.finditer(text)]
        read: dict[int, bool] = {}  # whether calls follow a sign, asked once for each
        for place in (0, *ends):
            blank = _SPACE.match(text, place)
            begun = blank.end() if blank else place
            if text[begun : begun + 1] in ("{", "[") and _read_bare(text[begun:].rstrip()):
                return place or None
            following = bisect_right(signs, place)
            sign = signs[following] if following < len(signs) else None
            if sign is not None and sign not in read:
                read[sign] = bool(_read_bare(text[sign:].strip(_WHITE_SPACE)))
            if sign is not None and read[sign]:
                return place or None
    return ends[-1] if ends else None


def _parse_tagged(text: str) -> tuple[str, list[tuple[str, Any]]] | None:
    found = list(_tagged_calls(text))
    if not found:
        return None
    edges = [0, *(edge for start, end, _ in found for edge in (start, end)), len(text)]
    kept = (text[edges[i] : edges[i + 1]].strip() for i in range(0, len(edges), 2))
    return "\n".join(part for part in kept if part), [function for _, _, function in found]


def _tagged_calls(text: str) -> Iterator[tuple[int, int, tuple[str, Any]]]:
    """Where each call begins and ends, and what it calls."""
    place = 0
    while match := _TAGGED.search(text, place):
        found = _call_at(text, match.start(1))
        if found is None:
            place = match.end()
            continue
        function, place = found
        yield match.start(), place, function


def _call_at(text: str, place: int) -> tuple[tuple[str, Any], int] | None:
    """The call that begins there, and where its closing tag ends; a text in it may hold tags."""
    blank = _SPACE.match(text, place)
    try:
        value, end = DECODER.raw_decode(text, blank.end() if blank else place)
        json.dumps(value, ensure_ascii=False).encode()  # lone surrogates are no text
    except (ValueError, RecursionError):
        return None
    closing = _CLOSING.match(text, end)
    function = _function(value, "arguments")
    return None if function is None or closing is None else (function, closing.end())


def _parse_bare(text: str) -> tuple[str, list[tuple[str, Any]]] | None:
    """Nothing but calls, one after the other or as a list, after an optional sign for calls."""
    functions = _read_bare(text.strip(_WHITE_SPACE))
    if functions:
        return "", functions
    sign = _first_sign(text)
    if sign is None:
        return None
    functions = _read_bare(sign[1].strip(_WHITE_SPACE))
    return (sign[0].strip(), functions) if functions else None


def _first_sign(text: str) -> tuple[str, str] | None:
    """What stands before the first sign for calls, and behind it."""
    found = [(text.index(sign), sign) for sign in CALL_SIGNS if sign in text]
    if not found:
        return None
    before, _, after = text.partition(min(found)[1])
    return before, after


def _read_bare(text: str) -> list[tuple[str, Any]] | None:
    functions: list[tuple[str, Any]] = []
    place = 0
    while place < len(text):
        try:
            value, end = DECODER.raw_decode(text, place)
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
        while place < len(text) and text[place] in _SEPARATORS:
            place += 1
    return functions


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
        value = decode_json(text)
        json.dumps(value, ensure_ascii=False).encode()  # lone surrogates are no text
        return value
    except (ValueError, RecursionError):
        return None

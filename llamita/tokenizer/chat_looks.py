"""Templates that look into a text see it as it is, though a shield has characters put aside.

A template may ask whether a content starts with `<tool_response>`, split it at `</think>` or trim
it. With stand-ins in the text the answers would be others than in the plain rendering. So whatever
compares, searches or cuts works on the text with its characters back, and what it cuts out keeps
its stand-ins: they are one character for one, so that every place is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from markupsafe import escape

from llamita.tokenizer.chat_bounds import budget, spend_on_replacing

stand_ins: ContextVar[Mapping[str, str]] = ContextVar(
    "characters behind stand-ins", default=MappingProxyType({})
)
"""The characters that the rendering going on has put aside, by their stand-ins."""

_STRIPS = frozenset({"strip", "lstrip", "rstrip", "removeprefix", "removesuffix"})
_SPLITS = frozenset({"split", "rsplit", "splitlines", "partition", "rpartition"})
_QUESTIONS = frozenset(
    {
        *("startswith", "endswith", "find", "rfind", "index", "rindex", "count", "isalnum"),
        *("isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric"),
        *("isprintable", "isspace", "istitle", "isupper"),
    }
)
LOOKING_METHODS = _QUESTIONS | _STRIPS | _SPLITS | {"replace"}
LOOKING_TESTS = frozenset(
    {
        *("==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", ">=", "ge", "<", "lt"),
        *("lessthan", "<=", "le", "in", "lower", "upper"),
    }
)


def as_it_is(value: Any) -> Any:
    """A text, or a list or the keys of a mapping of texts, with the characters put aside back."""
    table = stand_ins.get()
    if not table:
        return value
    if isinstance(value, str):
        budget.get().spend(len(value))
        for stand_in, character in table.items():
            value = value.replace(stand_in, character)
        return value
    if isinstance(value, list | tuple):
        return type(value)(as_it_is(item) if isinstance(item, str) else item for item in value)
    if isinstance(value, dict):
        return {as_it_is(key) if isinstance(key, str) else key: v for key, v in value.items()}
    return value


def look(text: str, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The result of a method of LOOKING_METHODS, with the stand-ins in what it cuts out."""
    whole = as_it_is(text)
    plain = [as_it_is(argument) for argument in arguments]
    plain_named = {key: as_it_is(value) for key, value in named.items()}
    if name == "replace" and len(plain) >= 2:
        return _replace(text, whole, plain, plain_named, *arguments[1:2])
    result = getattr(whole, name)(*plain, **plain_named)
    if name in _STRIPS:
        if name in ("rstrip", "removesuffix"):
            return text[: len(result)]
        if name == "strip":
            text = text[: len(whole.rstrip(*plain))]
        return text[len(text) - len(result) :]
    if name in _SPLITS:
        separator = plain_named.get("sep", plain[0] if plain else None)
        if "partition" in name:
            gap: int | None = 0
        else:
            gap = len(separator) if isinstance(separator, str) else None
        return type(result)(_pieces(text, whole, result, gap))
    return result


def looking_test(test: Any) -> Callable[..., Any]:
    """A test of Jinja (`is in`, `is eq`) that compares texts as they are."""

    def compare(*values: Any) -> Any:
        return test(*map(as_it_is, values))

    return compare


def escape_hidden(text: Any) -> Any:
    """What `escape` made, with the characters put aside escaped as well, where they need it."""
    for stand_in, character in stand_ins.get().items():
        if escape(character) != character:
            text = text.replace(stand_in, escape(character))
    return text


def _pieces(text: str, whole: str, pieces: Any, gap: int | None) -> list[str]:
    """The slices of `text` where `pieces` of `whole` stand, `gap` apart (None: white space)."""
    place, found = 0, []
    for piece in pieces:
        if gap is None:
            place = whole.find(piece, place)
        found.append(text[place : place + len(piece)])
        place += len(piece) + (gap or 0)
    return found


def _replace(text: str, whole: str, plain: list[Any], named: dict[str, Any], new: Any = "") -> str:
    count = named.get("count", plain[2] if len(plain) > 2 else -1)
    spend_on_replacing(whole, str(plain[0]), str(plain[1]), count)
    expected = whole.replace(*plain, **named)  # raises what wrong arguments raise
    if not plain[0]:
        return text.replace("", new, count)
    if expected == whole:
        return text
    found: str = new.join(_pieces(text, whole, whole.split(plain[0], count), len(plain[0])))
    return found

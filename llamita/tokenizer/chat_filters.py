"""The filters and string methods of chat templates, each bounded by what it may make."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from llamita.tokenizer.chat_bounds import (
    BoundExceeded,
    budget,
    check_width,
    spend_on_percent,
    spend_on_replacing,
)
from llamita.tokenizer.chat_looks import escape_hidden, look, stand_ins

# Those that lay out or encode text for web pages, which is nothing for a model.
_REMOVED = frozenset({"center", "slice", "striptags", "urlencode", "urlize", "wordwrap", "xmlattr"})
# These write nothing out: weighing what they look at would only cost time.
_UNWEIGHED = frozenset(
    {
        *("abs", "batch", "count", "d", "default", "first", "float", "int", "items", "last"),
        *("length", "map", "max", "min", "random", "reject", "rejectattr", "reverse", "round"),
        *("select", "selectattr"),
    }
)
_AS_METHODS = {"trim": "strip", "replace": "replace"}
_WIDTH_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_MAX_INDENT = 16


def bounded_filters(filters: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Jinja's filters within bounds; those that lay text out for web pages are left out."""
    bounded = {
        name: _bounded(name, function) for name, function in filters.items() if name not in _REMOVED
    }
    bounded["tojson"] = _to_json
    return bounded


def spend_on_method(text: str, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Bound the call of a method of `text`; gives the arguments to call it with."""
    purse = budget.get()
    purse.spend(len(text))
    if name in _WIDTH_METHODS:
        for argument in arguments[:1]:
            check_width(argument)
            purse.spend(len(text) + int(argument) * (1 + text.count("\t")))
    elif name == "replace" and len(arguments) >= 2:
        old, new, *count = arguments
        spend_on_replacing(text, str(old), str(new), count[0] if count else -1)
    elif name == "join" and arguments:
        parts = list(arguments[0])
        purse.spend(purse.weigh(parts) + len(text) * len(parts))
        return (parts, *arguments[1:])
    return arguments


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # How many arguments Jinja puts before the value: the context, or the environment.
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        value, rest = args[first], [*args[first + 1 :], *kwargs.values()]
        for argument in rest:
            check_width(argument)
        if name == "join":
            value = list(value)
        size = 0 if name in _UNWEIGHED else budget.get().weigh(value)
        if name == "format":
            spend_on_percent(str(value), tuple(rest) if not kwargs else dict(kwargs))
        elif name == "replace" and len(rest) >= 2:
            count = kwargs.get("count", rest[2] if len(rest) > 2 else None)
            spend_on_replacing(
                str(value), str(rest[0]), str(rest[1]), -1 if count is None else count
            )
        elif name == "join" and rest:
            budget.get().spend(size + len(value) * max(budget.get().weigh(r) for r in rest))
        elif name == "indent":
            width = rest[0] if rest else 4
            step = len(width) if isinstance(width, str) else int(width)
            budget.get().spend(size + step * (1 + str(value).count("\n")))
        if name in _AS_METHODS and stand_ins.get():
            rest = [a if a is None or isinstance(a, int) else str(a) for a in rest]
            return look(str(value), _AS_METHODS[name], tuple(rest), {})
        result = function(*args[:first], value, *args[first + 1 :], **kwargs)
        if name in ("e", "escape", "forceescape"):
            result = escape_hidden(result)
        if name in ("list", "batch") and isinstance(result, list):
            budget.get().weigh(result)
        return result

    return bounded


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """`json.dumps` without the escapes that Jinja's own filter makes for HTML."""
    purse = budget.get()
    purse.weigh(value)
    if isinstance(indent, int) and indent > _MAX_INDENT:
        raise BoundExceeded(f"it indents JSON by {indent}")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if indent is None:
        return encoder.encode(value)
    pieces, total = [], 0
    for piece in encoder.iterencode(value):
        total += len(piece)
        if total > purse.size:
            purse.spend(total)
        pieces.append(piece)
    return "".join(pieces)

"""Damage to JSON values, by what kind they are."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

ODD_NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 127, 255, 4096, 65536, 10**9, 2**31 - 1, 2**31, 2**53, 2**62, 2**63),
    *(2**64, -(2**63), 0.5, -0.0, 1e-300, 1e308, float("nan"), float("inf"), 10**30, 10**3000),
)
ODD_TEXTS = (
    *("", " ", "\0", "\ud800", "a" * 100_000, "../up", "/etc/passwd", "{{", "\x1b[2J", "\n" * 50),
    *("(a+)+$", "((a{1,99}){1,99}){1,99}", "(?=", "[", "\\p{L}+", "true", "1", "é" * 999, "<0x41>"),
    *("BPE", "ByteLevel", "Sequence", "llama3", "yarn", "linear", "dynamic", "default", "float16"),
    "{% for i in range(99999) %}{% for j in range(99999) %}a{% endfor %}{% endfor %}",
    "{{ 'a' * 9999999999 }}",
    "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "{{ ''.__class__.__mro__ }}",
)


def spoil(draw: random.Random, value: Any) -> Any:
    """A copy of `value` with one thing in it changed."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    if not places:
        return _odd(draw, value)
    # Few settings stand beside thousands of tokens: those near the top come first.
    places.sort(key=lambda place: place[2])
    cut = draw.choice((12, 40, len(places)))
    holder, key, _ = draw.choice(places[:cut])
    action = draw.randrange(10)
    if action < 5:
        holder[key] = _odd(draw, holder[key])
    elif action == 5:
        del holder[key]
    elif action == 6 and isinstance(holder, dict):
        holder[draw.choice((*ODD_TEXTS[:8], f"{key}2"))] = holder.pop(key)
    elif action == 7 and isinstance(holder, list):
        holder.extend([holder[key]] * draw.choice((1, 9, 999)))
    elif action == 8:
        nested = holder[key]
        for _ in range(draw.choice((1, 50, 700))):
            nested = [nested] if draw.random() < 0.5 else {"a": nested}
        holder[key] = nested
    else:
        other, other_key, _ = draw.choice(places)
        try:
            holder[key] = copy.deepcopy(other[other_key])
        except (KeyError, IndexError):
            holder[key] = None
    return value


def dumps(draw: random.Random, value: Any) -> bytes:
    """As text; now and then with a key twice, or with what is no JSON."""
    text = json.dumps(value)
    if draw.random() < 0.05 and isinstance(value, dict) and value:
        key = draw.choice(sorted(value, key=str))
        text = "{" + json.dumps(key) + ": " + json.dumps(_odd(draw, value[key])) + ", " + text[1:]
    if draw.random() < 0.03:
        text = draw.choice((text + "}", text[:-1], "\ufeff" + text, "[" * 5000, text * 2, "null"))
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any, depth: int = 0) -> Any:
    items: Any = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items:
        yield value, key, depth
        if depth < 12:
            yield from _places(inner, depth + 1)


def _odd(draw: random.Random, value: Any) -> Any:
    """Something in place of `value`: most often of its own kind."""
    if draw.random() < 0.3:
        return draw.choice((None, True, False, [], {}, [[]], "x", -1, 0, [None] * 99, {"": None}))
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        near = (value + 1, value - 1, value * 2, -value, str(value))
        return draw.choice((*ODD_NUMBERS, *near))
    if isinstance(value, str):
        return draw.choice((*ODD_TEXTS, value + "x", value[:-1], value * 3))
    if isinstance(value, list):
        return draw.choice(([], value[:-1], value * 2, value[::-1], value[:1] * 9, {}))
    return draw.choice(({}, [], None, "x"))

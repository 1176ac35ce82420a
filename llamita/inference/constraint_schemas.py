"""What a JSON schema says beyond what llguidance checks: unknown keywords, and needed characters.

llguidance reads Draft 2020-12 and takes keywords it does not know for annotations. Here a keyword
is one that is enforced, one that is known to say nothing about the text, or an error.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from llamita.errors import GenerationError
from llamita.inference.constraint_tokens import Alphabet

LONGEST_REGEX = 10_000
"""Characters: the work of llguidance grows with their square."""

_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalItems", "additionalProperties")
_VALUES = (
    *("type", "enum", "const", "$ref", "required", "minProperties", "maxProperties", "minItems"),
    *("maxItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
)
_ANNOTATIONS = (
    *("$schema", "$id", "id", "$anchor", "$comment", "$vocabulary", "title", "description"),
    *("default", "examples", "example", "deprecated", "readOnly", "writeOnly", "discriminator"),
    *("contentMediaType", "contentEncoding", "contentSchema"),
)
_ENFORCED = (*_OF_SCHEMAS, *_LISTS, *_SINGLE, *_VALUES)
_KNOWN = frozenset((*_ENFORCED, *_ANNOTATIONS))

_DIGITS = "0123456789"
_MARKS = {
    "object": '{}":,',
    "array": "[],",
    "string": '"',
    "integer": _DIGITS,
    "number": _DIGITS,
    "boolean": "truefalse",
    "null": "null",
}
_TAKES_ITS_TYPE_FROM = ("enum", "const", "$ref", "anyOf", "oneOf", "allOf")


_MOST = {"schemas": 1500, "allOf": 10, "patternProperties": 50, "required": 1500}


def check_schema(schema: dict[str, Any]) -> None:
    """Refuse keywords that would not be enforced, and what would take too long to read.

    Raises:
        GenerationError: naming the keyword.
    """
    counts = dict.fromkeys(_MOST, 0)
    for part in _subschemas(schema):
        counts["schemas"] += 1
        for keyword, kind in (("allOf", list), ("patternProperties", dict), ("required", list)):
            counts[keyword] += len(_of(part, keyword, kind))
        for keyword, most in _MOST.items():
            if counts[keyword] > most:
                raise GenerationError(
                    f"schema is too large: of {keyword} there may be {most} in all.",
                    hint="Make it smaller.",
                )
        for keyword in part:
            if keyword not in _KNOWN:
                raise _unknown(keyword)
        for regex in (part.get("pattern"), *_of(part, "patternProperties", dict)):
            if isinstance(regex, str) and len(regex) > LONGEST_REGEX:
                raise GenerationError(
                    f"schema has a pattern of {len(regex):,} characters; at most "
                    f"{LONGEST_REGEX:,} are read.",
                    hint="Make it smaller.",
                )
        least, required = part.get("minProperties"), part.get("required")
        named = len(required) if isinstance(required, list) else 0
        # Names that the schema leaves open may come twice, and would be counted twice.
        if isinstance(least, int) and least > named + 1:
            raise GenerationError(
                f"schema has minProperties {least} and requires {named} by name: that there are "
                "so many different ones cannot be enforced.",
                hint="List the properties under required.",
            )


def required_texts(schema: dict[str, Any]) -> Iterator[str]:
    """Texts that JSON of the schema may be required to hold: its punctuation, names and values."""
    for part in _subschemas(schema):
        for name in _types(part):
            yield _MARKS[name]
        values = [*_of(part, "properties", dict), *_of(part, "required", list)]
        values += _of(part, "enum", list)
        values += [part["const"]] if "const" in part else []
        for value in values:
            yield json.dumps(value, ensure_ascii=False)


def json_escapes(alphabet: Alphabet) -> str:
    r"""The escapes that may follow a backslash: those whose characters can all be written."""
    escapes = "".join(escape for escape in 'nrbtf\\"' if escape in alphabet)
    return escapes + ("u" if alphabet.missing("u" + _DIGITS) is None else "")


def _subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and those within it; what is wrongly shaped is left out."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            if part is True:
                yield {}
            continue
        yield part
        for keyword in _OF_SCHEMAS:
            waiting += _of(part, keyword, dict).values()
        for keyword in _LISTS:
            waiting += _of(part, keyword, list)
        for keyword in _SINGLE:
            value = part.get(keyword)
            waiting += value if isinstance(value, list) else [value]


def _types(part: dict[str, Any]) -> list[str]:
    """The types whose marks JSON of a schema may hold; all where it leaves its content open."""
    given = part.get("type")
    types = [given] if isinstance(given, str) else _of(part, "type", list)
    named = [name for name in types if isinstance(name, str) and name in _MARKS]
    untyped = not types and not any(keyword in part for keyword in _TAKES_ITS_TYPE_FROM)
    opens = {"object": "additionalProperties", "array": "items"}
    if untyped or any(name in opens and opens[name] not in part for name in named):
        return list(_MARKS)
    return named


def _of(part: dict[str, Any], keyword: str, kind: type) -> Any:
    value = part.get(keyword)
    return value if isinstance(value, kind) else kind()


def _unknown(keyword: str) -> GenerationError:
    near = difflib.get_close_matches(keyword, _ENFORCED, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return GenerationError(
        f"schema has the keyword {keyword!r}, which cannot be enforced.",
        hint=f"{hint}Enforced are: {', '.join(sorted(_ENFORCED))}.",
    )

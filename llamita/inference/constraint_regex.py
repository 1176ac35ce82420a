r"""Regular expressions as people write them, in the dialect of Rust's `regex` crate.

There `\d`, `\w` and `\s` hold every digit, letter and space of Unicode's newest tables; a number
from a model should be one that `int` and JSON read. So they are ASCII here, as in JSON schemas'
`pattern` (ECMA 262): `\p{Nd}`, `\p{L}` and the like name Unicode's.
"""

from __future__ import annotations

import re

_SPACES = r"\t\n\x0B\x0C\r "
_ASCII = {
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]",
    r"\s": f"[{_SPACES}]",
    r"\S": f"[^{_SPACES}]",
}
# A `]` that comes first in a class is itself, and so are dashes.
_OPENING = re.compile(r"\[\^?(?:-+|\])?")
_NAMED_CLASS = re.compile(r"\[:\^?[a-z]+:\]")


def ascii_classes(regex: str) -> str:
    r"""The expression with `\d`, `\w`, `\s`, `\D`, `\W`, `\S` written out, also within classes."""
    parts: list[str] = []
    depth = at = 0
    while at < len(regex):
        part = _part(regex, at, depth)
        at += len(part)
        if part.startswith("["):
            depth += not part.startswith("[:")
        elif part == "]":
            depth = max(0, depth - 1)
        # No range ends in a class, so the dash before one is itself; two of them are an operator.
        if depth and part in _ASCII and parts[-1] == "-" != parts[-2]:
            parts[-1] = r"\-"
        parts.append(_ASCII.get(part, part))
    return "".join(parts)


def _part(regex: str, at: int, depth: int) -> str:
    """An escape, what opens a class, or one character."""
    if regex[at] == "\\":
        return regex[at : at + 2]
    if regex[at] == "[":
        named = _NAMED_CLASS.match(regex, at) if depth else None
        opening = named or _OPENING.match(regex, at)
        return opening[0] if opening else "["
    return regex[at]

"""A calculator's expressions, read by a parser of their own: no `eval`, bounded size and time.

    sum      = product (("+" | "-") product)*
    product  = factor (("*" | "/" | "//" | "%") factor)*
    factor   = ("+" | "-")* power
    power    = atom ("**" factor)?
    atom     = number | "(" sum ")"

So precedence is Python's: -2**2 is -4, 2**3**2 is 512, % has the sign of the divisor.
"""

from __future__ import annotations

import re
from fractions import Fraction

from llamita.tools.builtin.numbers import power, within_bounds

LONGEST = 200
"""Characters."""

_DEEPEST = 30
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d*)?|\.\d+)|(\*\*|//|[-+*/%()]))", re.ASCII)


def evaluate(expression: str) -> Fraction:
    """The value of an expression, exact but for roots that are no fraction.

    Raises:
        ValueError: what cannot be read, and where; or a number too large.
        ZeroDivisionError: a division by zero.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"the expression has {len(expression)} characters; at most {LONGEST}")
    reader = _Reader(_tokens(expression))
    value = reader.sum()
    if reader.next is not None:
        raise ValueError(f"{reader.next!r} is not expected there")
    return value


def _tokens(expression: str) -> list[str]:
    tokens = []
    place, end = 0, len(expression.rstrip())
    while place < end:
        match = _TOKEN.match(expression, place)
        if not match:
            rest = expression[place:].lstrip()
            raise ValueError(f"{rest[:1]!r} is no number, parenthesis or one of + - * / // % **")
        tokens.append(match[1] or match[2])
        place = match.end()
    return tokens


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0
        self._depth = 0

    @property
    def next(self) -> str | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _take(self, *expected: str) -> str | None:
        token = self.next
        if token is None or token not in expected:
            return None
        self._place += 1
        return token

    def sum(self) -> Fraction:
        value = self._product()
        while sign := self._take("+", "-"):
            other = self._product()
            value = within_bounds(value + other if sign == "+" else value - other)
        return value

    def _product(self) -> Fraction:
        value = self._factor()
        while sign := self._take("*", "/", "//", "%"):
            value = within_bounds(_combine(sign, value, self._factor()))
        return value

    def _factor(self) -> Fraction:
        negative = False
        while sign := self._take("+", "-"):
            negative ^= sign == "-"
        value = self._power()
        return -value if negative else value

    def _power(self) -> Fraction:
        base = self._atom()
        if not self._take("**"):
            return base
        with _deeper(self):
            return within_bounds(power(base, self._factor()))

    def _atom(self) -> Fraction:
        if self._take("("):
            with _deeper(self):
                value = self.sum()
            if not self._take(")"):
                raise ValueError("a parenthesis is not closed")
            return value
        token = self.next
        if token is None:
            raise ValueError("the expression ends where a number is expected")
        if not (token[0].isdigit() or token[0] == "."):
            raise ValueError(f"{token!r} stands where a number is expected")
        self._place += 1
        return Fraction(token)


class _deeper:
    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        self._reader._depth += 1
        if self._reader._depth > _DEEPEST:
            raise ValueError(f"the expression is nested more than {_DEEPEST} deep")

    def __exit__(self, *_: object) -> None:
        self._reader._depth -= 1


def _combine(sign: str, left: Fraction, right: Fraction) -> Fraction:
    if sign == "*":
        return left * right
    if right == 0:
        raise ZeroDivisionError("division by zero")
    if sign == "/":
        return left / right
    return Fraction(left // right) if sign == "//" else left % right

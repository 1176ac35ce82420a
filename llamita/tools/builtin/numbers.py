"""Exact numbers of bounded size, and how they are written."""

from __future__ import annotations

from decimal import Context, Decimal, DecimalException
from fractions import Fraction

_MOST_BITS = 20_000
_MOST_DIGITS = 40
_SHOWN_DIGITS = 12
_PRECISE = Context(prec=50, Emax=20_000, Emin=-20_000)
_LARGEST_ROOT = 64


def within_bounds(value: Fraction) -> Fraction:
    """The value; ValueError for one of more digits than a calculator takes."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        raise ValueError("the number is too large")
    return value


def power(base: Fraction, exponent: Fraction) -> Fraction:
    """base ** exponent: exact where it is a fraction of bounded size, else to 50 digits.

    Raises:
        ZeroDivisionError: a negative power of zero.
        ValueError: no real number, or too large a one.
    """
    if base == 0 and exponent < 0:
        raise ZeroDivisionError("division by zero")
    if base in (0, 1) or exponent == 0:
        return Fraction(1) if exponent == 0 else base
    if exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent.numerator) * bits <= _MOST_BITS:
            return base**exponent.numerator
        if base.denominator == 1 and abs(base) > 1 and exponent > 0:
            raise ValueError("the number is too large")
    elif base < 0:
        raise ValueError("a root of a negative number is no real number")
    root = _exact_root(base, exponent.denominator)
    if root is not None and exponent.denominator != 1:
        return power(root, Fraction(exponent.numerator))
    try:
        near = _PRECISE.power(_decimal(abs(base)), _decimal(exponent))
    except DecimalException:
        raise ValueError("the number is too large") from None
    negative = base < 0 and exponent.numerator % 2 == 1
    return within_bounds(Fraction(-near if negative else near))


def as_decimal(value: Fraction) -> Decimal:
    """All digits of a finite decimal of at most 40; of others the first 12.

    Raises:
        ValueError: beyond what JSON's readers take for a number.
    """
    exact = _finite(value)
    shown = Context(prec=_SHOWN_DIGITS, Emax=20_000, Emin=-20_000)
    near = shown.divide(Decimal(value.numerator), Decimal(value.denominator))
    if near.adjusted() > 300:
        raise ValueError("the number is too large")
    return near.normalize(shown) if exact is None else exact


def _finite(value: Fraction) -> Decimal | None:
    rest, places = value.denominator, 0
    for factor in (10, 5, 2):
        while rest % factor == 0:
            rest //= factor
            places += 1
            if places > _MOST_DIGITS:
                return None
    digits = value.numerator * 10**places // value.denominator
    if rest != 1 or abs(digits) >= 10**_MOST_DIGITS:
        return None
    wide = Context(prec=2 * _MOST_DIGITS)
    return wide.scaleb(Decimal(digits), -places).normalize(wide)


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    if degree > _LARGEST_ROOT:
        return None
    parts = []
    for part in (value.numerator, value.denominator):
        near = int(
            _PRECISE.power(Decimal(abs(part)), _decimal(Fraction(1, degree))) + Decimal("0.5")
        )
        if near**degree != part:
            return None
        parts.append(near)
    return Fraction(parts[0], parts[1])


def _decimal(value: Fraction) -> Decimal:
    return _PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator))

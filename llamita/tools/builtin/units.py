"""The unit converter."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Literal

from llamita.tools.builtin.numbers import as_decimal

# Of each kind: how many of the first unit one of each is. Exact by definition (yard and pound
# agreement of 1959; US gallon of 231 cubic inches; international nautical mile; IEC 80000-13).
_FACTORS: dict[str, dict[str, str]] = {
    "length": {
        **{"m": "1", "mm": "0.001", "cm": "0.01", "km": "1000"},
        **{"in": "0.0254", "ft": "0.3048", "yd": "0.9144", "mi": "1609.344"},
    },
    "mass": {
        **{"g": "1", "mg": "0.001", "kg": "1000", "t": "1000000"},
        **{"oz": "28.349523125", "lb": "453.59237"},
    },
    "temperature": {"K": "1", "C": "1", "F": "5/9"},
    "volume": {
        **{"l": "1", "ml": "0.001", "m3": "1000"},
        **{"tsp": "0.00492892159375", "tbsp": "0.01478676478125", "cup": "0.2365882365"},
        **{"pt": "0.473176473", "qt": "0.946352946", "gal": "3.785411784"},
    },
    "speed": {"m/s": "1", "km/h": "5/18", "mph": "0.44704", "kn": "1852/3600"},
    "time": {"s": "1", "ms": "0.001", "min": "60", "h": "3600", "d": "86400", "wk": "604800"},
    "area": {
        **{"m2": "1", "cm2": "0.0001", "ha": "10000", "km2": "1000000"},
        **{"ft2": "0.09290304", "acre": "4046.8564224"},
    },
    "data": {
        **{"B": "1", "bit": "1/8", "kB": "1000", "MB": "1000000", "GB": "1000000000"},
        **{"TB": "1000000000000", "KiB": "1024", "MiB": "1048576", "GiB": "1073741824"},
    },
}
_ZERO_IN_KELVIN = {"C": Fraction("273.15"), "F": Fraction("459.67") * Fraction(5, 9)}

Unit = Literal[
    "m", "mm", "cm", "km", "in", "ft", "yd", "mi",
    "g", "mg", "kg", "t", "oz", "lb",
    "K", "C", "F",
    "l", "ml", "m3", "tsp", "tbsp", "cup", "pt", "qt", "gal",
    "m/s", "km/h", "mph", "kn",
    "s", "ms", "min", "h", "d", "wk",
    "m2", "cm2", "ha", "km2", "ft2", "acre",
    "B", "bit", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB",
]  # fmt: skip

KINDS: dict[str, tuple[str, ...]] = {kind: tuple(units) for kind, units in _FACTORS.items()}
"""The units of each kind, by their signs."""


def convert_units(value: float, from_unit: Unit, to_unit: Unit) -> Decimal:
    """Convert a value from one unit to another.

    Args:
        value: How many of from_unit.
        from_unit: The unit it is in.
        to_unit: The unit it is wanted in.
    """
    kind, other = _kind(from_unit), _kind(to_unit)
    if kind != other:
        raise ValueError(f"{from_unit} is a unit of {kind}, {to_unit} one of {other}")
    base = Fraction(repr(value)) * Fraction(_FACTORS[kind][from_unit])
    base += _ZERO_IN_KELVIN.get(from_unit, 0)
    if kind == "temperature" and base < 0:
        raise ValueError(f"{value} {from_unit} is below absolute zero")
    base -= _ZERO_IN_KELVIN.get(to_unit, 0)
    return as_decimal(base / Fraction(_FACTORS[kind][to_unit]))


def _kind(unit: str) -> str:
    return next(kind for kind, units in _FACTORS.items() if unit in units)

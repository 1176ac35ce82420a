"""JSON as models write it in calls: one rule for what is a number, wherever arguments are read."""

from __future__ import annotations

import json
import sys
from typing import Any

_MOST_DIGITS = 4000


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _float(digits: str) -> float:
    """Beyond the largest double there is only Infinity, which is no JSON: it stands for them."""
    return max(-sys.float_info.max, min(float(digits), sys.float_info.max))


def _integer(digits: str) -> int:
    """A whole number; as `_float` for one that Python takes no trouble to read."""
    return int(digits) if len(digits) <= _MOST_DIGITS else int(_float(digits))


DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_float, parse_int=_integer)
"""Reads a value within a text too (`raw_decode`)."""


def decode_json(text: str) -> Any:
    """The value of a JSON text.

    Raises ValueError for what is none (NaN and Infinity are none), RecursionError where it is
    nested too deep.
    """
    return DECODER.decode(text)

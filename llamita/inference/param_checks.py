"""Checks of single settings: each gives the value in the form that is kept, or an error.

The error names the setting and the value, and its hint says what it must be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from llamita.errors import GenerationError

_BIAS = "from token ids to numbers from -100 to 100"


def wrong_value(name: str, value: Any, allowed: str) -> GenerationError:
    """The error of a setting that has the wrong value."""
    try:
        shown = repr(value)
    except ValueError:  # Python refuses to write out whole numbers of thousands of digits
        shown = "a number of thousands of digits"
    return GenerationError(f"{name} is {shown}.", hint=f"{name} must be {allowed}.")


def integer(name: str, value: Any, allowed: str, lowest: int, highest: int | None = None) -> int:
    """A whole number in its range; True and False are none."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise wrong_value(name, value, f"a whole number, {allowed}")
    if int(value) < lowest or (highest is not None and int(value) > highest):
        raise wrong_value(name, value, allowed)
    return int(value)


def number(
    name: str, value: Any, allowed: str, lowest: float = -math.inf, highest: float = math.inf
) -> float:
    """A finite number in its range; True and False are none."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise wrong_value(name, value, f"a number, {allowed}")
    try:
        result = float(value)
    except OverflowError:
        raise wrong_value(name, value, allowed) from None
    if not math.isfinite(result):
        raise wrong_value(name, value, f"a finite number, {allowed}")
    if not lowest <= result <= highest:
        raise wrong_value(name, value, allowed)
    return result


def boolean(name: str, value: Any) -> bool:
    """True or False, and nothing that merely passes for one."""
    if not isinstance(value, bool):
        raise wrong_value(name, value, "True or False")
    return value


def one_of(name: str, value: Any, allowed: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise wrong_value(name, value, f"one of: {', '.join(allowed)}")
    return value


def text(name: str, value: Any) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise wrong_value(name, value, "a string that is not empty")
    return value


def strings(name: str, value: Any) -> tuple[str, ...]:
    """One string or several, none of them empty; None is no string."""
    given = () if value is None else (value,) if isinstance(value, str) else value
    allowed = "a string or a list of strings, none of them empty"
    if not isinstance(given, list | tuple):
        raise wrong_value(name, value, allowed)
    if not all(isinstance(string, str) and string for string in given):
        raise wrong_value(name, value, allowed)
    return tuple(given)


def choices(name: str, value: Any) -> tuple[str, ...]:
    """At least one string; the same one twice counts once."""
    allowed = "a list of strings, at least one, none of them empty"
    if not isinstance(value, list | tuple) or not value:
        raise wrong_value(name, value, allowed)
    if not all(isinstance(string, str) and string for string in value):
        raise wrong_value(name, value, allowed)
    return tuple(dict.fromkeys(value))


def token_ids(name: str, value: Any, allowed: str) -> tuple[int, ...]:
    """Whole numbers of 0 or more, in the order in which they are given; None is no number."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple | set | frozenset):
        raise wrong_value(name, value, allowed)
    for token_id in value:
        if not isinstance(token_id, Integral) or isinstance(token_id, bool) or int(token_id) < 0:
            raise wrong_value(name, value, allowed)
    return tuple(int(token_id) for token_id in value)


def logit_bias(name: str, value: Any) -> tuple[tuple[int, float], ...]:
    """Pairs of token id and bias, sorted by id; from a mapping, or from such pairs."""
    if value is None:
        return ()
    if not isinstance(value, Mapping | tuple):
        raise wrong_value(name, value, f"a mapping {_BIAS}")
    biases: dict[int, float] = {}
    for pair in value.items() if isinstance(value, Mapping) else value:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise wrong_value(name, value, f"a mapping {_BIAS}")
        token_id = _bias_id(name, pair[0])
        if token_id in biases:
            raise GenerationError(
                f"{name} names token {token_id} twice.", hint="Give each token one bias."
            )
        biases[token_id] = _bias(name, token_id, pair[1])
    return tuple(sorted(biases.items()))


def _bias_id(name: str, key: Any) -> int:
    """JSON has only strings for keys, so "42" is 42."""
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 19:
        return int(key)
    if not isinstance(key, Integral) or isinstance(key, bool) or int(key) < 0:
        raise GenerationError(
            f"{name} has the key {key!r}, which is no token id.",
            hint=f"{name} must be a mapping {_BIAS}.",
        )
    return int(key)


def _bias(name: str, token_id: int, value: Any) -> float:
    allowed = "from -100 to 100; banned_token_ids rules tokens out for certain"
    return number(f"{name}[{token_id}]", value, allowed, -100.0, 100.0)


def schema(name: str, value: Any) -> str:
    """The text of a JSON schema: given as that, as a mapping, or as True for any JSON object.

    The order of its properties is kept: it is the order in which they will be written.
    """
    allowed = "a JSON schema (JSON text or a dict), or true for any JSON object"
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise GenerationError(
                f"{name} is not JSON: {error}.", hint=f"{name} must be {allowed}."
            ) from None
    if value is True:
        value = {"type": "object"}
    if not isinstance(value, Mapping):
        raise wrong_value(name, value, allowed)
    try:
        return json.dumps(dict(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise GenerationError(
            f"{name} cannot be written as JSON: {error}.", hint=f"{name} must be {allowed}."
        ) from None

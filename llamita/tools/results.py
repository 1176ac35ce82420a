"""What a tool gives back, as JSON text for the model."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from llamita.errors import ToolError

_IN_WORDS = (ValueError, ZeroDivisionError, ToolError)


def json_text(value: Any) -> str:
    """The JSON text of a result: JSON data, dataclasses, enums, dates, sets, pydantic's models.

    A Decimal is written with all its digits. Raises ValueError for what has no JSON.
    """
    if isinstance(value, Decimal) and value.is_finite():
        return _decimal_text(value)
    try:
        text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        if "Out of range" not in str(error):
            raise
        raise ValueError("the result holds a number that is not finite, which JSON lacks") from None
    return text.encode("utf-8", errors="replace").decode()  # a lone surrogate is no text


def error_text(message: str) -> str:
    """What a model reads where a call went wrong: {"error": …}."""
    return json_text({"error": message})


def exception_text(error: BaseException) -> str:
    """What a model reads of an exception: its kind too, where its message alone tells nothing."""
    said, kind = str(error), type(error).__name__
    if said and type(error) in _IN_WORDS:
        return said
    return f"{kind}: {said}" if said else kind


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value, inf_nan_mode="constants")
    except (PydanticSerializationError, TypeError) as error:
        raise ValueError(f"the result, of type {type(value).__name__}, has no JSON") from error


def _decimal_text(value: Decimal) -> str:
    if value == value.to_integral_value() and value.adjusted() < 60:
        return str(int(value))
    if -10 < value.adjusted() < 60:
        return format(value, "f")
    return format(value.normalize(), "e")

"""The calculator."""

from __future__ import annotations

from decimal import Decimal

from llamita.tools.builtin.arithmetic import LONGEST, evaluate
from llamita.tools.builtin.numbers import as_decimal
from llamita.tools.tool import Tool

_NUMBER = r"([0-9]+(\.[0-9]+)?|\.[0-9]+)"
# What a constrained model may write: numbers and operators in turn. Parentheses need not match.
_PATTERN = rf"^[-+( ]*{_NUMBER}[) ]*((\*\*|//|[-+*/%])[-+( ]*{_NUMBER}[) ]*)*$"


def calculate(expression: str) -> Decimal:
    """The value of an arithmetic expression.

    Exact where it is a finite decimal of at most 40 digits, else its first 12.
    Raises ValueError for what cannot be read and ZeroDivisionError.
    """
    return as_decimal(evaluate(expression))


def calculator_tool() -> Tool:
    """The calculator as a tool."""
    expression = {
        "type": "string",
        "description": "Numbers with + - * / // % ** and parentheses, such as (2.5 + 4) * 12",
        "pattern": _PATTERN,
        "maxLength": LONGEST,
    }
    parameters = {
        "type": "object",
        "properties": {"expression": expression},
        "required": ["expression"],
        "additionalProperties": False,
    }
    return Tool("calculator", "Calculate an arithmetic expression.", parameters, calculate)

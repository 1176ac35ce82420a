"""The calculator: exact, bounded, and no `eval`."""

from __future__ import annotations

import contextlib
import json
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.tools.builtin.arithmetic import evaluate
from llamita.tools.builtin.calculator import calculate, calculator_tool
from llamita.tools.builtin.numbers import as_decimal
from llamita.tools.results import json_text
from llamita.tools.toolbox import Toolbox

NUMBER = st.integers(0, 999).map(str) | st.decimals(0, 99, places=2).map(str)


def _expressions() -> st.SearchStrategy[str]:
    def longer(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        operator = st.sampled_from([" + ", "-", "*", " / ", "//", " % "])
        return (
            st.tuples(inner, operator, inner).map("".join)
            | inner.map("({})".format)
            | inner.map("-{}".format)
            | st.tuples(inner, st.sampled_from(["**2", "**3", "** -1"])).map(
                lambda pair: f"({pair[0]}){pair[1]}"
            )
        )

    return st.recursive(NUMBER, longer, max_leaves=6)


def python_says(expression: str) -> Fraction | None:
    """Python's own answer, with exact numbers; None where it divides by zero."""
    exact = re.sub(r"\d+(\.\d+)?", lambda number: f"F('{number[0]}')", expression)
    try:
        return Fraction(eval(exact, {"F": Fraction}))
    except ZeroDivisionError:
        return None


@given(expression=_expressions())
def test_it_says_what_python_says_with_exact_numbers(expression: str) -> None:
    expected = python_says(expression)
    if expected is None:
        with pytest.raises(ZeroDivisionError):
            evaluate(expression)
    else:
        assert evaluate(expression) == expected


@given(expression=_expressions())
def test_the_schema_lets_every_expression_through(expression: str) -> None:
    if len(expression) <= 200:
        answer = json.loads(
            Toolbox([calculator_tool()]).run("calculator", {"expression": expression})
        )
        assert isinstance(answer, int | float) or "written" not in answer["error"]


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("0.1 + 0.2", "0.3"),
        ("12*9", "108"),
        ("-2**2", "-4"),
        ("2**3**2", "512"),
        ("-7 % 3", "2"),
        ("7 // -2", "-4"),
        ("10/3", "3.33333333333"),
        ("2/3", "0.666666666667"),
        ("2**100", "1267650600228229401496703205376"),
        ("8**(1/3)", "2"),
        ("2.25**0.5", "1.5"),
        ("2**0.5", "1.41421356237"),
        ("5--3", "8"),
        ("1/3*3", "1"),
        ("0**0", "1"),
        ("1000000*1000000", "1000000000000"),
        ("1/8000", "0.000125"),
    ],
)
def test_answers_are_exact_where_they_are_finite(expression: str, answer: str) -> None:
    assert json_text(calculate(expression)) == answer


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("", "ends where a number is expected"),
        ("1 +", "ends where a number is expected"),
        ("(1", "not closed"),
        ("1)", r"'\)' is not expected"),
        ("1 2", "'2' is not expected"),
        ("2 ^ 3", "'\\^' is no number"),
        ("abs(1)", "'a' is no number"),
        ("__import__('os')", "'_' is no number"),
        ("1 + *2", "'\\*' stands where a number"),
        ("9**9**9", "too large"),
        ("9999999999**999999999", "too large"),
        ("10**400", "too large"),
        ("(-8)**0.5", "no real number"),
        ("1+" * 101 + "1", "203 characters"),
        ("(" * 40 + "1" + ")" * 40, "nested"),
        ("2**" * 60 + "1", "nested"),
    ],
)
def test_what_cannot_be_calculated_says_why(expression: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        calculate(expression)


@given(text=st.text("0123456789.+-*/%() ", max_size=200))
def test_no_expression_takes_long_or_breaks_it(text: str) -> None:
    with contextlib.suppress(ValueError, ZeroDivisionError):
        calculate(text)


@given(value=st.fractions())
def test_a_decimal_is_the_number_or_twelve_digits_of_it(value: Fraction) -> None:
    shown = Fraction(as_decimal(value))
    assert abs(shown - value) <= abs(value) / 10**11
    if shown != value:
        digits = len(str(value.denominator)) + len(str(value.numerator))
        assert value.denominator % 3 == 0 or value.denominator > 2 or digits > 40

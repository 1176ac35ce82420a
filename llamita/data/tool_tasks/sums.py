"""How sums and products are asked for: as formulas, in words, and as something to do."""

from __future__ import annotations

from llamita.data.tool_tasks.wording import Split

Core = tuple[str, str]  # words, and the expression that they mean

_SYMBOLS = (
    *((f"{{a}} {sign} {{b}}", f"{{a}}{sign}{{b}}") for sign in "+-*/"),
    *((f"{{a}}{sign}{{b}}", f"{{a}}{sign}{{b}}") for sign in "+-*/"),
    ("{a} x {b}", "{a}*{b}"),
    ("{a} + {b} - {c}", "{a}+{b}-{c}"),
    ("{a} * {b} + {c}", "{a}*{b}+{c}"),
    ("({a} + {b}) * {c}", "({a}+{b})*{c}"),
    ("{a} * ({b} - {c})", "{a}*({b}-{c})"),
)
# As they are typed: the expression is the same without spaces.
_MORE_SYMBOLS = (
    *("{a} + {b} + {c}", "{a}+{b}+{c}", "{a} - {b} - {c}", "{a}-{b}-{c}", "{a} - {b} + {c}"),
    *("{a}+{b}-{c}", "{a}*{b}+{c}", "{a}*{b}-{c}", "{a} * {b} - {c}", "{a}+{b}*{c}"),
    *("{a} + {b} * {c}", "{a} - {b} * {c}", "{a} / {b} + {c}", "{a}/{b}-{c}", "{a} * {b} * {c}"),
    *("({a}+{b})*{c}", "({a}-{b})*{c}", "({a} - {b}) * {c}", "({a} + {b}) / {c}", "({a}-{b})/{c}"),
    *("{a}*({b}+{c})", "{a} * ({b} + {c})", "{a}*({b}-{c})", "{a} - ({b} + {c})", "{a}-({b}-{c})"),
    *("{a} +{b}", "{a}+ {b}", "{a} -{b}", "{a}- {b}", "{a} *{b}", "{a}* {b}", "{a} /{b}"),
    *("({a} + {b})", "({a}*{b})"),
)
_SHORT = (
    ("{a} plus {b}", "{a}+{b}"),
    ("{a} minus {b}", "{a}-{b}"),
    ("{a} times {b}", "{a}*{b}"),
    ("{a} multiplied by {b}", "{a}*{b}"),
    ("{a} divided by {b}", "{a}/{b}"),
    ("{a} over {b}", "{a}/{b}"),
)
_TRAIN_WORDS = (
    ("[the |a |]sum of {a} and {b}", "{a}+{b}"),
    ("the sum {a} plus {b}", "{a}+{b}"),
    ("{a} and {b} [together|combined|added up|summed up|in total|in all]", "{a}+{b}"),
    ("{a} added to {b}", "{a}+{b}"),
    ("{a} with {b} added", "{a}+{b}"),
    ("{a} and another {b}", "{a}+{b}"),
    ("{a} and {b} more", "{a}+{b}"),
    ("{a} increased by {b}", "{a}+{b}"),
    ("[the |a |]product of {a} and {b}", "{a}*{b}"),
    ("the product {a} times {b}", "{a}*{b}"),
    ("{a} and {b} multiplied", "{a}*{b}"),
    ("{a} taken {b} times", "{a}*{b}"),
    ("[the |]difference [between|of] {a} and {b}", "{a}-{b}"),
    ("{a} [less|without|reduced by|lowered by] {b}", "{a}-{b}"),
    ("{a} with {b} [taken away|taken off|removed]", "{a}-{b}"),
    ("{b} [less than|subtracted from|taken from] {a}", "{a}-{b}"),
    ("what is left of {a} without {b}", "{a}-{b}"),
    ("[the |a |]quotient of {a} and {b}", "{a}/{b}"),
    ("{a} [split by|shared by|split into|cut into] {b}", "{a}/{b}"),
    ("the ratio of {a} to {b}", "{a}/{b}"),
    ("one part of {a} in {b} parts", "{a}/{b}"),
    ("{a} plus {b} plus {c}", "{a}+{b}+{c}"),
    ("{a} minus {b} minus {c}", "{a}-{b}-{c}"),
    ("{a} minus {b} plus {c}", "{a}-{b}+{c}"),
    ("{a} times {b} plus {c}", "{a}*{b}+{c}"),
    ("{a} times {b} minus {c}", "{a}*{b}-{c}"),
    ("{a} times {b} times {c}", "{a}*{b}*{c}"),
    ("[the |]sum of {a}, {b} and {c}", "{a}+{b}+{c}"),
    ("{a}, {b} and {c} [together|in total|added up]", "{a}+{b}+{c}"),
    ("[the |]product of {a}, {b} and {c}", "{a}*{b}*{c}"),
    ("{c} times the sum of {a} and {b}", "{c}*({a}+{b})"),
)
_TEST_WORDS = (
    ("the total of {a} and {b}", "{a}+{b}"),
    ("both {a} and {b} together", "{a}+{b}"),
    ("a product of {a} by {b}", "{a}*{b}"),
    ("{a} plus {b} minus {c}", "{a}+{b}-{c}"),
    ("{a} plus {b} times {c}", "{a}+{b}*{c}"),
)
THINGS: dict[Split, tuple[tuple[float, tuple[Core, ...]], ...]] = {
    "train": (
        (0.32, _SYMBOLS),
        (0.18, tuple((text, text.replace(" ", "")) for text in _MORE_SYMBOLS)),
        (0.02, (("{a}x{b}", "{a}*{b}"),)),
        (0.24, _SHORT),
        (0.24, _TRAIN_WORDS),
    ),
    "test": ((1.0, (*_SYMBOLS, *_SHORT, *_SHORT, *_TEST_WORDS)),),
}
DEEDS: dict[Split, tuple[tuple[float, tuple[Core, ...]], ...]] = {
    "train": (
        (
            0.4,
            (
                ("add {a} and {b}", "{a}+{b}"),
                ("subtract {b} from {a}", "{a}-{b}"),
                ("take {b} from {a}", "{a}-{b}"),
                ("multiply {a} [by|and] {b}", "{a}*{b}"),
                ("divide {a} by {b}", "{a}/{b}"),
            ),
        ),
        (
            0.6,
            (
                ("add {a} to {b}", "{a}+{b}"),
                ("[add|sum|count] up {a} and {b}", "{a}+{b}"),
                ("[sum|join|total] {a} and {b}", "{a}+{b}"),
                ("put {a} and {b} together", "{a}+{b}"),
                ("[increase|raise] {a} by {b}", "{a}+{b}"),
                ("find the sum of {a} and {b}", "{a}+{b}"),
                ("take {a} and add {b}", "{a}+{b}"),
                ("add up {a}, {b} and {c}", "{a}+{b}+{c}"),
                ("add {a}, {b} and {c}", "{a}+{b}+{c}"),
                ("[deduct|remove] {b} from {a}", "{a}-{b}"),
                ("take {b} off {a}", "{a}-{b}"),
                ("[reduce|lower|decrease] {a} by {b}", "{a}-{b}"),
                ("start with {a} and subtract {b}", "{a}-{b}"),
                ("find what is left of {a} after {b}", "{a}-{b}"),
                ("take {a} exactly {b} times", "{a}*{b}"),
                ("find the product of {a} and {b}", "{a}*{b}"),
                ("take {a} and multiply it by {b}", "{a}*{b}"),
                ("multiply {a}, {b} and {c}", "{a}*{b}*{c}"),
                ("[split|divide|cut] {a} into {b} [equal |]parts", "{a}/{b}"),
                ("[split|share] {a} [among|between] {b}", "{a}/{b}"),
                ("take {a} and divide it by {b}", "{a}/{b}"),
                ("add {a} and {b}, then multiply by {c}", "({a}+{b})*{c}"),
                ("add {a} and {b}, then subtract {c}", "{a}+{b}-{c}"),
                ("multiply {a} by {b}, then add {c}", "{a}*{b}+{c}"),
                ("multiply {a} by {b} and subtract {c}", "{a}*{b}-{c}"),
                ("take {b} from {a}, then add {c}", "{a}-{b}+{c}"),
            ),
        ),
    ),
    "test": (
        (
            1.0,
            (
                ("add {a} and {b}", "{a}+{b}"),
                ("subtract {b} from {a}", "{a}-{b}"),
                ("take {b} away from {a}", "{a}-{b}"),
                ("multiply {a} with {b}", "{a}*{b}"),
                ("multiply {a} by {b}", "{a}*{b}"),
                ("divide {a} by {b}", "{a}/{b}"),
            ),
        ),
    ),
}

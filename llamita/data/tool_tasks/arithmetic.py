"""Sums and products for the calculator."""

from __future__ import annotations

from dataclasses import dataclass

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.values import number, whole_number
from llamita.data.tool_tasks.wording import Split, Wordings, fill, plain, say, ways
from llamita.tools.builtin.calculator import calculate
from llamita.tools.results import json_text

LONGEST_RESULT = 9  # characters: what a small model can say again


@dataclass(frozen=True)
class _Form:
    """Words for an expression; `frames` are what may stand around them."""

    words: str
    expression: str
    frames: Wordings


# What can be asked for: "what is 4 times 5?"
_THING = Wordings(
    train=(
        "[what is|what's|whats] {e}?",
        "[hi, |hello, |]how much is {e}?",
        "[please |]calculate {e}[.|]",
        "[please |now |]work out {e}[.| for me.]",
        "[hey, |]can you compute {e}[?| for me?]",
        "tell me {e}[.|, please.]",
        "i need {e}[.| right away.]",
        "{e}?",
        "{e} =",
        "what does {e} [make|come to|give]?",
        "[do you know|any idea] what {e} is?",
        "find {e}[.| for me.]",
        "a quick question: {e}?",
        "my homework asks for {e}.",
        "the result of {e}[?|, please.]",
        "let me know {e}.",
        "i forgot how much {e} is.",
        "is it hard to get {e}?",
        "and {e}?",
        "{e}, evaluate that.",
        "would you tell me what {e} is?",
        "help, what is {e}?",
        "which value has {e}?",
        "i'd like {e}.",
        "show me {e}.",
        "give me {e}[.| at once.]",
        "equals what: {e}?",
    ),
    test=(
        "would someone [kindly |]reckon {e}[?|, maybe?]",
        "[i'd like|we want] to hear {e}.",
        "[give us|show us] the value {e} has.",
        "{e} equals what?",
        "help [me |us ]with {e}.",
        "so {e} gives how much[?| now?]",
        "[go ahead and |]evaluate {e}.",
        "once more: {e}[?|, many thanks.]",
        "{e}[ then|, if you can].",
        "what would {e} be?",
    ),
)
# What can be done: "please add 4 and 5"
_DEED = Wordings(
    train=(
        "[please |]{e}[.|]",
        "[can|could] you {e}?",
        "{e} for me[.|, please.]",
        "i want you to {e}.",
        "my teacher says: {e}.",
        "let us {e}.",
        "you {e}, please.",
        "now {e}, quick.",
    ),
    test=(
        "[now |]let's {e}.",
        "kindly {e}[.|, many thanks.]",
        "we must {e}[ today|].",
        "help me {e}.",
    ),
)
# A little story that needs nothing around it.
_STORY = Wordings(train=("{e}",), test=("{e}",))

_SYMBOLS = (
    *((f"{{a}} {sign} {{b}}", f"{{a}}{sign}{{b}}") for sign in "+-*/"),
    *((f"{{a}}{sign}{{b}}", f"{{a}}{sign}{{b}}") for sign in "+-*/"),
    ("{a} x {b}", "{a}*{b}"),
    ("{a} + {b} - {c}", "{a}+{b}-{c}"),
    ("{a} * {b} + {c}", "{a}*{b}+{c}"),
    ("({a} + {b}) * {c}", "({a}+{b})*{c}"),
    ("{a} * ({b} - {c})", "{a}*({b}-{c})"),
)
_SHORT = (
    ("{a} plus {b}", "{a}+{b}"),
    ("{a} minus {b}", "{a}-{b}"),
    ("{a} times {b}", "{a}*{b}"),
    ("{a} multiplied by {b}", "{a}*{b}"),
    ("{a} divided by {b}", "{a}/{b}"),
    ("{a} over {b}", "{a}/{b}"),
)
_THINGS: dict[Split, tuple[tuple[str, str], ...]] = {
    "train": (
        *_SYMBOLS,
        *_SHORT,
        *_SHORT,
        ("the sum of {a} and {b}", "{a}+{b}"),
        ("{a} and {b} together", "{a}+{b}"),
        ("{a} and {b} in total", "{a}+{b}"),
        ("the product of {a} and {b}", "{a}*{b}"),
        ("the difference between {a} and {b}", "{a}-{b}"),
        ("{a} less {b}", "{a}-{b}"),
        ("{a} plus {b} plus {c}", "{a}+{b}+{c}"),
        ("{a} minus {b} minus {c}", "{a}-{b}-{c}"),
        ("{a} times {b} plus {c}", "{a}*{b}+{c}"),
        ("the sum of {a}, {b} and {c}", "{a}+{b}+{c}"),
    ),
    "test": (
        *_SYMBOLS,
        *_SHORT,
        *_SHORT,
        ("the total of {a} and {b}", "{a}+{b}"),
        ("both {a} and {b} together", "{a}+{b}"),
        ("a product of {a} by {b}", "{a}*{b}"),
        ("{a} plus {b} minus {c}", "{a}+{b}-{c}"),
        ("{a} plus {b} times {c}", "{a}+{b}*{c}"),
    ),
}
_DEEDS: dict[Split, tuple[tuple[str, str], ...]] = {
    "train": (
        ("add {a} and {b}", "{a}+{b}"),
        ("add up {a}, {b} and {c}", "{a}+{b}+{c}"),
        ("subtract {b} from {a}", "{a}-{b}"),
        ("take {b} from {a}", "{a}-{b}"),
        ("multiply {a} by {b}", "{a}*{b}"),
        ("multiply {a} and {b}", "{a}*{b}"),
        ("divide {a} by {b}", "{a}/{b}"),
    ),
    "test": (
        ("add {a} and {b}", "{a}+{b}"),
        ("subtract {b} from {a}", "{a}-{b}"),
        ("take {b} away from {a}", "{a}-{b}"),
        ("multiply {a} with {b}", "{a}*{b}"),
        ("multiply {a} by {b}", "{a}*{b}"),
        ("divide {a} by {b}", "{a}/{b}"),
    ),
}
_STORIES: dict[Split, tuple[tuple[str, str], ...]] = {
    "train": (
        ("[there are|i see] {a} boxes with {b} pens in each. how many pens is that?", "{a}*{b}"),
        ("a ticket costs {b} coins. what do {a} tickets cost?", "{a}*{b}"),
        ("[we|they] share {a} coins among {b} people. how much does each get?", "{a}/{b}"),
        ("[i had|he had] {a} apples and ate {b}. how many are left?", "{a}-{b}"),
        ("there were {a} birds and {b} flew away. how many stayed?", "{a}-{b}"),
        ("i walked {a} steps, then {b} more. how many steps in all?", "{a}+{b}"),
        ("one shelf holds {a} books, the other {b}. how many in all?", "{a}+{b}"),
    ),
    "test": (
        ("we packed {a} bags with {b} apples in each, so how many apples?", "{a}*{b}"),
        ("one cup costs {b} coins, so what do {a} cups cost?", "{a}*{b}"),
        ("she had {a} pens and lost {b}, so how many are left?", "{a}-{b}"),
        ("the boy found {a} shells, then {b} more, so how many in all?", "{a}+{b}"),
    ),
}


def _forms(split: Split) -> list[tuple[float, list[_Form]]]:
    kinds = ((0.68, _THINGS, _THING), (0.22, _DEEDS, _DEED), (0.10, _STORIES, _STORY))
    return [
        (weight, [_Form(words, expression, frames) for words, expression in cores[split]])
        for weight, cores, frames in kinds
    ]


_FORMS = {"train": _forms("train"), "test": _forms("test")}


def wordings(split: Split) -> list[str]:
    """Every way to ask, with `SLOT` for numbers."""
    found: list[str] = []
    for _, forms in _FORMS[split]:
        asked = {
            frame.replace("{e}", plain(words))  # signs are no words: many forms are the same here
            for form in forms
            for words in ways(form.words)
            for frame in form.frames.of(split)
        }
        found += Wordings(tuple(asked), tuple(asked)).all(split)
    return found


def arithmetic(split: Split, dice: Dice) -> Task:
    """A task for the calculator."""
    form = dice.pick(dice.pick_weighted(_FORMS[split]))
    while True:
        is_story = form.frames is _STORY
        values = {
            name: whole_number(split, dice, 4) if is_story else number(split, dice)
            for name in ("a", "b", "c")
        }
        expression = fill(form.expression, values)
        if _suits(expression):
            break
    words = fill(say(form.words, dice), values)
    request = form.frames.pick(split, dice, e=words)
    return Task(
        "arithmetic",
        request,
        lambda result: f"{expression} = {result}",
        "calculator",
        {"expression": expression},
    )


def _suits(expression: str) -> bool:
    """Whether the result is short enough, and no fewer than nothing of apples."""
    result = json_text(calculate(expression))
    return len(result) <= LONGEST_RESULT and not result.startswith("-")

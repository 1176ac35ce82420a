"""Exercises in saying again what was said, all of it or one thing of several, or as signs.

Calls are copied from requests, and copying is the one thing that a small model with little text
behind it does not bring along: with lists of tools before every task it meets too little of it to
find out how it is done (docs/experiments.md). These are short, and copying is all that they want.
They are for learning alone: there are none in the test split.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llamita.data.tool_tasks import translation
from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.lexicon import Lexicon
from llamita.data.tool_tasks.names import person, place
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.values import number
from llamita.data.tool_tasks.wording import Wordings
from llamita.data.tool_tasks.words import label, note

KIND, TRANSLATION = "exercise", "translation"
_AGAIN, _CHOOSING, _FORMULA, _SIGNS = "again", "choosing", "formula", "signs"
_SORTS = ((0.58, _AGAIN), (0.12, _CHOOSING), (0.18, _FORMULA), (0.12, _SIGNS))
_MOST_ITEMS = 5
_LONGEST = 32  # letters of several things to say again: about a dozen tokens
_PLACES = ("first", "second", "third", "fourth", "fifth")
# No answers where a number is asked for.
_NUMBER_WORDS = frozenset(
    (
        *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
        *("eleven", "twelve", "twenty", "thirty", "forty", "fifty", "hundred", "thousand"),
        *("zero", "first", "second", "third", "fifth", "half", "million", "dozen"),
    )
)

_ASKED = Wordings(
    train=(
        "repeat: {x}",
        "say: {x}",
        'say "{x}".',
        'write "{x}".',
        "repeat after me: {x}",
        "again, please: {x}",
        'what i said was "{x}".',
        "copy this: {x}",
        "copy: {x}",
        'copy "{x}" for me.',
        'repeat "{x}".',
        "say after me: {x}",
        "say this again: {x}",
        "say it as i do: {x}",
        "say the same: {x}",
        'can you say "{x}"?',
        'could you repeat "{x}"?',
        'i say "{x}", and you?',
        'i say "{x}", you say it too.',
        'the word is "{x}". say it.',
        'it reads "{x}". what does it read?',
        '"{x}", say that.',
        '"{x}". now you.',
        '"{x}": once more.',
        'once more: "{x}"',
        "one more time: {x}",
        "echo: {x}",
        "echo {x}",
        "say {x}",
        "write {x}",
        "repeat {x}",
        "say {x}.",
        "repeat {x}.",
        "now say {x}, and stop.",
        "it is {x}. what is it?",
        "copy {x}. no more.",
        "type: {x}",
        "spell it as i did: {x}",
        "read this to me: {x}",
        "what stands here: {x}",
        "answer with this: {x}",
        'answer with "{x}" and nothing else.',
        "do as i do: {x}",
        'please give back "{x}".',
        "word by word: {x}",
        "my words were: {x}",
        'all i want to hear is "{x}".',
        "let me hear it: {x}",
    ),
    test=(),
)
# One of several: n says which.
_WHICH = Wordings(
    train=(
        "the {n} of: {x}",
        "the {n}: {x}",
        "say the {n} of these: {x}",
        "which is the {n}: {x}",
        "only the {n}: {x}",
        "give me the {n} of {x}",
        'what is the {n} in "{x}"?',
        'of "{x}", say the {n}.',
        'from "{x}" take the {n}.',
        'in "{x}", which comes {n}?',
        "pick the {n} one: {x}",
        "i want the {n} one of: {x}",
    ),
    test=(),
)
# The neighbour of w: n is "after" or "before".
_NEIGHBOUR = Wordings(
    train=(
        "the word {n} {w}: {x}",
        "what comes {n} {w}: {x}",
        "say what stands {n} {w}: {x}",
        "which one is {n} {w}: {x}",
        'in "{x}", what is {n} {w}?',
        'what comes right {n} {w} in "{x}"?',
        'find {w} and say what is {n} it: "{x}"',
        "and {n} {w}: {x}",
    ),
    test=(),
)
# The only one of its kind: n says of which.
_ODD = Wordings(
    train=(
        "the {n} in: {x}",
        "the {n} only: {x}",
        "find the {n}: {x}",
        "say the {n} in this: {x}",
        "which {n} is in here: {x}",
        "is there a {n} in it: {x}",
        "give me only the {n}: {x}",
        "i look for the {n}: {x}",
    ),
    test=(),
)


def wordings() -> list[str]:
    """Every way to ask, with `SLOT` for what is to be said again."""
    forms = (_ASKED, _WHICH, _NEIGHBOUR, _ODD)
    return [said for form in forms for said in form.all("train")] + translation.wordings()


def exercise(dice: Dice, lexicon: Lexicon) -> Task:
    """Something to say again, in other signs or as it is."""
    sort = dice.pick_weighted(_SORTS)
    if sort == _CHOOSING:
        return dice.pick((_which, _which, _neighbour, _odd))(dice, lexicon)
    if sort == _AGAIN:
        text = _text(dice, lexicon)
        return Task(KIND, _ASKED.pick("train", dice, x=text), text)
    return Task(
        TRANSLATION, *(translation.formula if sort == _FORMULA else translation.signs)(dice)
    )


def _which(dice: Dice, lexicon: Lexicon) -> Task:
    items = _items(dice, lexicon, 2)
    place_of = dice.below(len(items))
    is_last = place_of == len(items) - 1 and dice.chance(0.5)
    which = "last" if is_last else _PLACES[place_of]
    text = dice.pick((", ", " ")).join(items)
    return Task(KIND, _WHICH.pick("train", dice, n=which, x=text), items[place_of])


def _neighbour(dice: Dice, lexicon: Lexicon) -> Task:
    items = _items(dice, lexicon, 3)
    at = dice.below(len(items) - 1)
    word, next_to, answer = items[at], "after", items[at + 1]
    if dice.chance(0.4):
        word, next_to, answer = answer, "before", word
    text = dice.pick((", ", " ", " ")).join(items)
    return Task(KIND, _NEIGHBOUR.pick("train", dice, n=next_to, w=word, x=text), answer)


def _odd(dice: Dice, lexicon: Lexicon) -> Task:
    """A number among words, or a text in quotation marks or brackets among others."""
    kind = dice.pick(("number", "quote", "text in brackets"))
    others = dice.different(1 + dice.below(3), dice.pick((lexicon.word, lexicon.invented)))
    if kind == "number":
        others = [word for word in others if word.lower() not in _NUMBER_WORDS]
        answer = shown = number("train", dice)
    else:
        answer = " ".join(dice.different(1 + dice.below(2), partial(_any, lexicon)))
        shown = f"'{answer}'" if kind == "quote" else f"({answer})"
    others.insert(dice.below(len(others) + 1), shown)
    return Task(KIND, _ODD.pick("train", dice, n=kind, x=" ".join(others)), answer)


def _text(dice: Dice, lexicon: Lexicon) -> str:
    """What is to be said again: one thing, several of a kind, or several of all kinds."""
    kind = dice.below(10)
    if kind == 0:
        return note("train", dice)
    if kind == 1:
        return f"{label('train', dice)} {number('train', dice)}"
    if kind < 4:
        return _any(lexicon, dice)
    if kind == 4:
        return f"{person(dice)} {dice.pick(('from', 'in', 'and', 'of'))} {place(dice)}"
    items = _items(dice, lexicon, 2)
    while len(items) > 1 and sum(map(len, items)) > _LONGEST:
        items.pop()
    return dice.pick((" ", " ", ", ")).join(items)


def _items(dice: Dice, lexicon: Lexicon, fewest: int) -> list[str]:
    """Some that differ, of one kind or of all kinds."""
    count = fewest + dice.below(1 + _MOST_ITEMS - fewest)
    anything = partial(_any, lexicon)
    makers: tuple[Callable[[Dice], str], ...] = (
        *(anything, anything, lexicon.invented, lexicon.word, _number, person),
    )
    return dice.different(count, dice.pick(makers))


def _any(lexicon: Lexicon, dice: Dice) -> str:
    """A number, a word, or what is none: that meets tokens that no list of words has."""
    return dice.pick((_number, lexicon.word, lexicon.invented, person))(dice)


def _number(dice: Dice) -> str:
    return number("train", dice)

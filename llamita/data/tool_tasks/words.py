"""What notes and labels say. The two splits have other things; how they begin is shared.

A model that reads byte pairs knows a word behind a space and the same word behind a quotation mark
as two. So what notes and labels of the test split begin with is met in training, and what follows
is free. Training has many things, and words that nobody knows (`invented`), so that what is copied
cannot be learned by heart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from llamita.data.tool_tasks import things
from llamita.data.tool_tasks.common_words import COMMON
from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.invented import invented
from llamita.data.tool_tasks.names import PEOPLE, PLACES
from llamita.data.tool_tasks.wording import Split

_INVENTED = 0.4  # how often a note or a label of the training split has a word that nobody knows
_OPENING = 3  # words; no note of the training split begins with as many of a test's

# What is done in the test split, and to which kind of thing.
_DEEDS = {
    "goods": ("buy", "get", "order", "bring", "find", "return", "pick up"),
    "people": ("call", "visit", "thank", "ask", "meet", "write to"),
    "home": ("clean", "fix", "paint", "check", "sell", "wash", "move"),
    "papers": ("pay", "send", "print", "read", "sign", "renew"),
}
_THINGS = {
    "goods": (
        *("eggs", "a big umbrella", "sugar", "the yellow curtain rod", "pears", "a kettle"),
        *("some tea", "sun cream", "a wooden spoon", "onions", "printer toner", "a pillow"),
    ),
    "people": (
        *("my sister", "the plumber", "mister white", "paul", "the library", "my neighbour"),
        *("aunt mary", "the manager", "our new colleague", "laura"),
    ),
    "home": (
        *("the bathroom", "the back window", "my desk", "the shed", "the heater", "the lamp"),
        *("the garage door", "the carpet", "my boots"),
    ),
    "papers": (
        *("the phone bill", "my visa", "the short story", "the insurance", "the summary"),
        *("the gas bill", "the agenda"),
    ),
}
_WHEN = (
    *("tomorrow", "tonight", "today", "on monday", "on friday", "next week", "before lunch"),
    *("this evening", "after work", "at noon", "on sunday morning", "in the afternoon", "soon"),
)
# What is noted as a fact.
_FACTS = (
    *(("the ladder", "my wallet", "the spare battery", "the blue folder"),),
    *(("beside the bed", "inside the cupboard", "near the window", "with the neighbour"),),
)
_KINDS = (
    *("soft", "green", "black", "hot", "long", "short", "slow", "quick", "rye", "white", "sweet"),
    *("big", "small", "morning", "evening", "deep", "dark"),
)
_TIMED = (
    *("pasta", "pizza", "workout", "meeting", "potatoes", "laundry", "stretch", "call"),
    *("pancakes", "shower", "swim", "roast"),
)

_SMALL_WORDS = frozenset(
    ("the", "a", "my", "our", "some", "new", "beside", "inside", "near", "with")
)

_OWNERS = ("the", "the", "my", "my", "our", "this", "that", "your")
_MANY = ("", "", "", "some", "some", "more", "the", "my", "our", "enough")
_NOUNS = {
    "food": (things.FOOD, things.TASTES),
    "supplies": (things.SUPPLIES, things.SHAPED[:10] + things.ADJECTIVES[:5]),
    "one": (things.ONE, things.SHAPED + things.ADJECTIVES),
    "home": (things.HOME, things.SHAPED + things.ADJECTIVES),
    "papers": (things.PAPERS, things.ADJECTIVES),
}
_BUSINESS = ("goods", "people", "home", "papers")
_GOING = ("go to", "fly to", "walk to", "travel to", "stay in", "leave for", "move to", "see")


@cache
def loose_words() -> tuple[str, ...]:
    """Every word of the training split's notes and labels, and common ones besides, once."""
    texts = [
        *COMMON,
        *(text for of_kind in things.DEEDS.values() for text in of_kind),
        *(*things.FOOD, *things.SUPPLIES, *things.ONE, *things.HOME, *things.PAPERS),
        *(*things.ROLES, *things.OFFICES, *things.TITLES, *things.SPOTS, *things.WHERE),
        *(*things.ADJECTIVES, *things.SHAPED, *things.TASTES, *things.WHEN, *things.TIMED),
        *(*things.TIMED_KINDS, *things.TIMED_FIRST, *things.TIMED_SECOND, *PEOPLE, *PLACES),
    ]
    return tuple(dict.fromkeys(word for text in texts for word in text.split()))


@cache
def things_of_test() -> frozenset[str]:
    """The words of the test split's things, facts and labels that training has none of."""
    texts = [*(thing for things_of in _THINGS.values() for thing in things_of), *_FACTS[0]]
    texts += (*_FACTS[1], *_TIMED)
    return frozenset(word for text in texts for word in text.split()) - _SMALL_WORDS


def note(split: Split, dice: Dice) -> str:
    """What a note may say: "call the bank on monday", "the key is in the drawer"."""
    if not dice.chance(0.15):
        return deed(split, dice)
    if split == "test":
        what, where = _FACTS
        return f"{dice.pick(what)} is {dice.pick(where)}"
    return _unlike_test(_fact, dice)


def deed(split: Split, dice: Dice) -> str:
    """What is to be done: "call the bank on monday"."""
    if split == "test":
        kind = dice.pick(tuple(_DEEDS))
        when = f" {dice.pick(_WHEN)}" if dice.chance(0.45) else ""
        return f"{dice.pick(_DEEDS[kind])} {dice.pick(_THINGS[kind])}{when}"
    return _unlike_test(_deed, dice)


def label(split: Split, dice: Dice) -> str:
    """What a timer may be for: "green tea"; in the training split one to three words."""
    if split == "test":
        return f"{dice.pick(_KINDS)} {dice.pick(_TIMED)}"
    words = [dice.pick(things.TIMED)]
    shape = dice.below(10)
    if shape >= 8:
        words = [dice.pick(things.TIMED_FIRST), dice.pick(things.TIMED_SECOND), *words]
    elif shape >= 2:
        words = [dice.pick(_KINDS if dice.chance(0.6) else things.TIMED_KINDS), *words]
    if dice.chance(_INVENTED):
        words[-1 if dice.chance(0.7) else 0] = invented(dice)
    return " ".join(words)


@cache
def _openings_of_test() -> frozenset[tuple[str, ...]]:
    texts = [
        *(f"{deed} {thing}" for k in _DEEDS for deed in _DEEDS[k] for thing in _THINGS[k]),
        *(f"{thing} is" for thing in _FACTS[0]),
    ]
    return frozenset(tuple(text.split()[:_OPENING]) for text in texts)


def _unlike_test(make: Callable[[Dice], str], dice: Dice) -> str:
    """A text that does not open as one of the test split: with two words before a note, the splits
    would come to share five in a row."""
    while True:
        text = make(dice)
        if tuple(text.lower().split()[:_OPENING]) not in _openings_of_test():
            return text


def _deed(dice: Dice) -> str:
    is_new = dice.chance(_INVENTED)
    shape = dice.below(10)
    if shape == 0:
        text = f"{dice.pick(_GOING)} {_place(dice, is_new)}"
    elif shape == 1:
        give = dice.pick(("give", "send", "bring", "show", "sell", "return", "lend"))
        text = f"{give} {_thing(dice, 'goods', is_new)} to {_someone(dice, dice.chance(0.2))}"
    elif shape == 2:
        about = dice.pick(("about", "for", "about"))
        talk = dice.pick(("ask", "call", "thank", "email", "write to", "meet"))
        text = f"{talk} {_someone(dice, is_new)} {about} {_thing(dice, 'papers', False)}"
    elif shape == 3 and not is_new:
        talk = dice.pick(("call", "visit", "thank", "ask", "write to", "email"))
        text = f"{talk} {dice.pick(_OWNERS[:5])} {dice.pick(things.OFFICES)}"
    else:
        kind = dice.pick(_BUSINESS)
        text = f"{_verb(dice, kind)} {_thing(dice, kind, is_new)}"
    return f"{text} {dice.pick(things.WHEN)}" if dice.chance(0.35) else text


def _fact(dice: Dice) -> str:
    is_new = dice.chance(_INVENTED)
    what = _thing(dice, "home" if dice.chance(0.5) else "papers", is_new and dice.chance(0.5))
    shape = dice.below(4)
    if shape == 0:
        return f"{_someone(dice, is_new)} is in {_place(dice, is_new)}"
    if shape == 1:
        return f"{_someone(dice, is_new)} has {what}"
    if shape == 2:
        return f"{what} is for {_someone(dice, is_new)}"
    spot = invented(dice) if is_new else dice.pick(things.SPOTS)
    return f"{what} is {dice.pick(things.WHERE)} the {spot}"


def _verb(dice: Dice, kind: str) -> str:
    """As often as not one that the test split has too."""
    return dice.pick(_DEEDS[kind] if dice.chance(0.5) else things.DEEDS[kind])


def _thing(dice: Dice, kind: str, is_new: bool) -> str:
    if kind == "people":
        return _someone(dice, is_new)
    if kind == "goods":
        kind = dice.pick(("food", "supplies", "one", "one"))
    nouns, adjectives = _NOUNS[kind]
    noun = invented(dice) if is_new else dice.pick(nouns)
    described = f"{dice.pick(adjectives)} {noun}" if dice.chance(0.3) else noun
    if kind in ("food", "supplies"):
        return f"{dice.pick(_MANY)} {described}".strip()
    if kind == "one" and dice.chance(0.5):
        return f"{'an' if described[0] in 'aeiou' else 'a'} {described}"
    return f"{dice.pick(_OWNERS)} {described}"


def _someone(dice: Dice, is_new: bool) -> str:
    """A person by name or by what they do; names as hasty people type them, or with a capital."""
    name = invented(dice) if is_new else dice.pick(PEOPLE)
    name = name.capitalize() if dice.chance(0.4) else name.lower()
    shape = dice.below(5)
    if shape == 0:
        return f"{dice.pick(things.TITLES)} {name}"
    if shape < 3 or is_new:
        return name
    return f"{dice.pick(_OWNERS[:5])} {dice.pick(things.ROLES)}"


def _place(dice: Dice, is_new: bool) -> str:
    name = invented(dice) if is_new else dice.pick(PLACES)
    return name.capitalize() if dice.chance(0.5) else name.lower()

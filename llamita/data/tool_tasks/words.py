"""What notes and labels are made of. The two splits have other things; how they begin is shared.

A model that reads byte pairs knows a word behind a space and the same word behind a quotation mark
as two; so the first words of what it is to copy come from short lists, and what follows is free.
"""

from __future__ import annotations

from functools import cache

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.wording import Split

# What is done, and to which kind of thing.
_DEEDS = {
    "goods": ("buy", "get", "order", "bring", "find", "return", "pick up"),
    "people": ("call", "visit", "thank", "ask", "meet", "write to"),
    "home": ("clean", "fix", "paint", "check", "sell", "wash", "move"),
    "papers": ("pay", "send", "print", "read", "sign", "renew"),
}
_THINGS: dict[Split, dict[str, tuple[str, ...]]] = {
    "train": {
        "goods": (
            *("milk", "bread", "apples", "a new coat", "some cheese", "the tickets", "stamps"),
            *("green paint", "two lemons", "a hat", "dog food", "soap", "white flowers", "paper"),
            *("a birthday gift", "coffee", "more rice", "batteries", "a lamp", "honey", "salt"),
            *("the blue shoes", "garden seeds", "a warm blanket", "fresh fish", "a map", "ink"),
            *("candles", "some wine", "oranges", "a chain", "wood", "a strong rope", "butter"),
        ),
        "people": (
            *("my mother", "the bank", "doctor brown", "anna", "the school", "my brother"),
            *("the old captain", "peter", "our landlord", "uncle john", "the dentist", "maria"),
            *("the office", "my cousin", "the baker", "lady grey", "the king", "our teacher"),
            *("henry", "the lawyer", "my friend thomas", "the hotel", "grandfather", "rosa"),
        ),
        "home": (
            *("the kitchen", "my bike", "the front door", "the car", "the windows", "the roof"),
            *("the old table", "the garden gate", "my room", "the fence", "the sink", "the boat"),
            *("the red chair", "the stairs", "my watch", "the oven", "the floor", "the clock"),
            *("the curtains", "the broken mirror", "the cellar", "my shirts", "the bell"),
        ),
        "papers": (
            *("the rent", "the water bill", "my passport", "the long letter", "the contract"),
            *("the report", "the taxes", "the new book", "the form", "the invitation", "the list"),
            *("the speech", "my library card", "the first chapter", "the plan", "the receipt"),
        ),
    },
    "test": {
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
    },
}
_WHEN = (
    *("tomorrow", "tonight", "today", "on monday", "on friday", "next week", "before lunch"),
    *("this evening", "after work", "at noon", "on sunday morning", "in the afternoon", "soon"),
)
# What is noted as a fact.
_FACTS: dict[Split, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "train": (
        *(("the key", "the money", "my old ring", "the red box", "the letter", "the sword"),),
        *(("under the stone", "in the drawer", "at the bank", "behind the door", "on the shelf"),),
    ),
    "test": (
        *(("the ladder", "my wallet", "the spare battery", "the blue folder"),),
        *(("beside the bed", "inside the cupboard", "near the window", "with the neighbour"),),
    ),
}
_KINDS = (
    *("soft", "green", "black", "hot", "long", "short", "slow", "quick", "rye", "white", "sweet"),
    *("big", "small", "morning", "evening", "deep", "dark"),
)
_TIMED: dict[Split, tuple[str, ...]] = {
    "train": (
        *("tea", "bread", "eggs", "rice", "break", "walk", "soup", "run", "coffee", "cake"),
        *("dance", "rest", "game", "sauce", "fish", "oven", "bath", "speech", "lesson", "watch"),
        *("pie", "stew", "dinner", "song", "nap", "wash", "fire", "ride", "beans", "corn"),
    ),
    "test": (
        *("pasta", "pizza", "workout", "meeting", "potatoes", "laundry", "stretch", "call"),
        *("pancakes", "shower", "swim", "roast"),
    ),
}


@cache
def loose_words() -> tuple[str, ...]:
    """Every word of the training split's notes and labels, once."""
    texts = [
        *(text for of_kind in _THINGS["train"].values() for text in of_kind),
        *(text for of_kind in _DEEDS.values() for text in of_kind),
        *(text for texts in _FACTS["train"] for text in texts),
        *(*_WHEN, *_KINDS, *_TIMED["train"]),
    ]
    return tuple(dict.fromkeys(word for text in texts for word in text.split()))


def note(split: Split, dice: Dice) -> str:
    """What a note may say: "call the bank on monday"."""
    if dice.chance(0.15):
        things, places = _FACTS[split]
        return f"{dice.pick(things)} is {dice.pick(places)}"
    kind = dice.pick(tuple(_DEEDS))
    deed, thing = dice.pick(_DEEDS[kind]), dice.pick(_THINGS[split][kind])
    when = f" {dice.pick(_WHEN)}" if dice.chance(0.45) else ""
    return f"{deed} {thing}{when}"


def label(split: Split, dice: Dice) -> str:
    """What a timer may be for: "green tea"."""
    return f"{dice.pick(_KINDS)} {dice.pick(_TIMED[split])}"

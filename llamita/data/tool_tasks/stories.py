"""Little stories that want a sum, a difference, a product or a quotient.

What is done with the numbers must be understood from what happens to the things. A product is
written as how many times how much each, in whatever order a story tells them.
"""

from __future__ import annotations

import re

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.invented import invented
from llamita.data.tool_tasks.sums import Core
from llamita.data.tool_tasks.wording import Split

_ASKING = re.compile(r"\. (how|what)")

_SUMS = (
    "{w} walked {a} steps, then {b} more. how many steps in all?",
    "one shelf holds {a} {t}, the other {b}. how many in all?",
    "i have {a} {t} and {w} has {b}. how many do we have together?",
    "{w} found {a} {t} and {v} found {b}. how many together?",
    "there are {a} {t} here and {b} {u} there. how many things is that?",
    "{w} had {a} {t} and got {b} more. how many now?",
    "{w} had {a} {t} and bought {b} more. how many has {w} got?",
    "we saw {a} {t} on monday and {b} on tuesday. how many in both days?",
    "{a} {t} were there and {b} more came. count them all.",
    "add my {a} {t} to the {b} that {w} has.",
    "i read {a} pages, then another {b}. how many pages were read?",
    "the first week brought {a} {t}, the second {b}. what is the total?",
    "the {t} cost {a} coins and the {u} cost {b}. what do i pay in all?",
    "{w} paid {a} for {t} and {b} for {u}. how much altogether?",
    "i earned {a} coins, and {w} gave me {b} more. how rich am i?",
    "{w} is {a} years old. how old will {w} be {b} years later?",
    "{a} {t} in the box, {b} outside: how many altogether?",
    "there were {a} {t}. then {w} brought {b} new ones. how many are there?",
    "{w} planted {a} trees in spring and {b} in autumn. total?",
    "a room with {a} people, and {b} come in. how many people?",
    "i put {a} {t} into the bag, and after that {b} {u}. how many items?",
    "we need {a} {t} for us and {b} for guests. how many should we buy?",
    "after {a} days in the north and {b} in the south, how many days away?",
    "{w} collected {a} {t} on top of the {b} from before. [sum|total]?",
)
_DIFFERENCES = (
    "[i|{w}] had {a} [apples|eggs|cookies|plums|pies] and ate {b}. how many are left?",
    "there were {a} birds and {b} flew away. how many stayed?",
    "{w} had {a} {t} and gave away {b}. how many remain?",
    "{w} had {a} {t}, but {b} got lost. how many are there still?",
    "i had {a} {t}. {w} took {b}. how many do i have now?",
    "of {a} {t}, {b} are broken. how many are good?",
    "we had {a} {t} and sold {b} of them. what is left?",
    "{w} gave {b} of the {a} {t} to friends. how many did {w} keep?",
    "there are {a} seats and {b} are taken. how many are free?",
    "i have {a} coins and pay {b} for {t}. how much do i keep?",
    "{w} wants {a} {t} but has {b}. how many are missing?",
    "the book has {a} pages, {b} are read. how many to go?",
    "{w} has {a} {t}, {v} has {b}. how many more has {w}?",
    "how many more is {a} {t} than {b} {t}?",
    "if i throw away {b} of {a} {t}, how many stay?",
    "{b} out of {a} {t} were stolen. how many were not?",
    "a rope of {a} meters, {b} are cut off. how long is it now?",
    "{a} people sat there, {b} went home. how many still sit there?",
    "i lost {b} of my {a} {t}. how many can i find at home?",
    "the {t} cost {a} coins, now {b} less. what is the price?",
    "{w} must walk {a} steps and has done {b}. how many remain?",
    "{a} {t} were in the shop, {b} have been sold. count the rest.",
    "we spent {b} of {a} coins on {t}. what remains?",
    "{w} is {a} years old and {v} is {b} years younger. how old is {v}?",
    "he dropped {b} of {a} {t}. how many did he hold on to?",
)
_PRODUCTS = (
    "[there are|i see] {a} boxes with {b} {t} in each. how many {t} is that?",
    "a ticket costs {b} coins. what do {a} tickets cost?",
    "{w} has {a} boxes, each with {b} {t}. how many {t}?",
    "each of {a} {n} brought {b} {t}. how many {t} came?",
    "{a} rows of {b} {t}. how many {t} are there?",
    "every box holds {b} {t}. how many {t} fit in {a} boxes?",
    "one {k} costs {b} coins. how much are {a} of them?",
    "{w} buys {a} {t} at {b} coins each. what is to pay?",
    "{a} {t} cost {b} coins apiece. what is the price of all?",
    "{w} works {a} hours for {b} coins per hour. how much is that?",
    "i run {b} miles a day. how many miles in {a} days?",
    "{a} {n} carry {b} {t} each. how many are carried?",
    "if one {k} weighs {b} grams, how heavy are {a}?",
    "{b} {t} per day for {a} days: how many {t}?",
    "we get {b} {t} every week. how many in {a} weeks?",
    "{a} shelves, {b} {t} on every shelf. how many {t}?",
    "{w} reads {b} pages a night. how many after {a} nights?",
    "a house has {b} windows. how many have {a} such houses?",
    "give {b} {t} to each of {a} {n}. how many do i need?",
    "{a} times a day {w} sells {b} {t}. how many a day?",
    "{a} tables with {b} chairs at each table, how many chairs?",
    "{a} packs of {b} {t}, how many {t}?",
    "the car goes {b} miles per hour. how far in {a} hours?",
    "a page has {b} lines. how many lines on {a} pages?",
)
_QUOTIENTS = (
    "[we|they] share {a} {t} among {b} people. how much does each get?",
    "{w} shares out {a} {t} to {b} {n}. how many for each?",
    "{a} {t} are put into {b} boxes. how many in each box?",
    "{b} {t} cost {a} coins. what does one cost?",
    "split {a} coins between {b} {n}. what does everyone get?",
    "{a} {t} for {b} {n}: how many each?",
    "we drove {a} miles in {b} hours. how many miles per hour?",
    "{b} {n} divide {a} {t} fairly. how many per head?",
    "i read {a} pages in {b} days. how many a day?",
    "{w} cuts {a} meters of rope into {b} pieces. how long is a piece?",
    "{a} {t} stand in {b} equal rows. how many in a row?",
    "a box holds {b} {t}. how many boxes for {a} {t}?",
    "{a} {t} go into bags of {b}. how many bags is that?",
    "a bill of {a} coins is paid by {b} {n}. how much must each pay?",
    "{b} days for {a} pages. how many pages a day?",
    "{w} earned {a} coins in {b} hours. how much per hour?",
    "if {b} {n} eat {a} [pears|cakes|eggs|lemons], how many does one eat?",
    "hand out {a} {t} to {b} {n} evenly. how many for one?",
    "one trip carries {b} {t}. how many trips for {a}?",
    "{a} grams are {b} portions. how many grams is a portion?",
)


def _joined(texts: tuple[str, ...], expression: str) -> tuple[Core, ...]:
    """Stories of one meaning; the question follows the tale as a sentence, or within it."""
    return tuple((_ASKING.sub(r"[.|.|,|:] \1", text), expression) for text in texts)


STORIES: dict[Split, tuple[Core, ...]] = {
    "train": (
        *_joined(_SUMS, "{a}+{b}"),
        *_joined(_DIFFERENCES, "{a}-{b}"),
        *_joined(_PRODUCTS, "{a}*{b}"),
        *_joined(_QUOTIENTS, "{a}/{b}"),
    ),
    "test": (
        ("we packed {a} bags with {b} apples in each, so how many apples?", "{a}*{b}"),
        ("one cup costs {b} coins, so what do {a} cups cost?", "{a}*{b}"),
        ("she had {a} pens and lost {b}, so how many are left?", "{a}-{b}"),
        ("the boy found {a} shells, then {b} more, so how many in all?", "{a}+{b}"),
    ),
}
_WHO = (
    *(
        "anna",
        "tom",
        "my aunt",
        "the girl",
        "the baker",
        "he",
        "she",
        "peter",
        "the farmer",
        "rosa",
    ),
    *("my son", "the king", "our cook", "henry", "a friend", "my sister", "the child", "maria"),
    *("the teacher", "one man", "grandmother", "the driver", "paul", "the sailor", "ben", "lucy"),
)
_THINGS = (
    *("pen", "book", "apple", "stamp", "card", "brick", "lemon", "button", "ball", "flower"),
    *("horse", "hat", "cookie", "carrot", "stone", "nail", "candle", "plate", "egg", "shirt"),
    *("ticket", "letter", "cake", "melon", "chair", "sheep", "goat", "duck", "marble", "spoon"),
    *("pear", "plum", "pie", "rose", "seed", "toy", "kite", "coin", "bottle", "basket", "bean"),
    *("bell", "ring", "drum", "mug", "photo", "postcard", "lamp", "cushion", "tile", "stick"),
)
_GROUPS = (
    *("boys", "girls", "friends", "men", "women", "people", "children", "workers", "guests"),
    *("sailors", "neighbours", "students", "soldiers", "players", "cooks", "families"),
)
_INVENTED = 0.25


def names_in_story(dice: Dice) -> dict[str, str]:
    """Who and what a story is about: a value for each slot that is no number."""
    who, things = dice.shuffled(_WHO)[:2], dice.shuffled(_THINGS)[:2]
    things = [invented(dice) if dice.chance(_INVENTED) else thing for thing in things]
    return {
        **{"w": who[0], "v": who[1], "n": dice.pick(_GROUPS)},
        **{"t": _plural(things[0]), "u": _plural(things[1]), "k": things[0]},
    }


def _plural(thing: str) -> str:
    if thing == "sheep":
        return thing
    return thing + ("es" if thing.endswith(("s", "x", "z", "sh", "ch")) else "s")

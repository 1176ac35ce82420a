"""What needs no tool: small talk, and questions whose answer stands in the message."""

from __future__ import annotations

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.values import whole_number
from llamita.data.tool_tasks.wording import Split, Wordings, fill, phrase

# What is said, and the answer to it.
_TALK = (
    (
        Wordings(
            ("hello[!|.|]", "hi[!|.| there!]", "hey[!|]", "good day[!|.]", "good morning[!|.]"),
            ("greetings[!|.]", "hello there[!|.]", "good evening[!|.]", "oh, hi[!|.]"),
        ),
        "Hello! How can I help?",
    ),
    (
        Wordings(
            ("thanks[!|.]", "thank you[!|.| so much.]", "great, thanks.", "very kind of you."),
            ("many thanks[!|.]", "thanks a lot[!|.]", "that was helpful, thank you."),
        ),
        "You are welcome.",
    ),
    (
        Wordings(
            ("how are you[?| today?]", "how do you do?", "are you well?", "how is it going?"),
            ("how have you been?", "is all well with you?", "are you feeling fine?"),
        ),
        "I am well, thank you.",
    ),
    (
        Wordings(
            ("who are you?", "what are you?", "what is your name?", "tell me who you are."),
            ("and you are?", "do you have a name?", "whom am i talking to?"),
        ),
        "I am a small assistant.",
    ),
    (
        Wordings(
            ("are you a robot?", "are you a person?", "are you human?", "are you real?"),
            ("is there a human behind you?", "am i talking to a person?"),
        ),
        "I am a program, no person.",
    ),
    (
        Wordings(
            ("[bye|goodbye][!|.]", "good night[!|.]", "see you[!| soon.]", "i must go now."),
            ("farewell[!|.]", "bye bye[!|.]", "until next time.", "see you later[!|.]"),
        ),
        "Goodbye!",
    ),
    (
        Wordings(
            ("i am [sad|tired][.| today.]", "i feel bad.", "it was a hard day.", "i am not well."),
            ("this day was bad.", "i feel so tired.", "i am a little sad."),
        ),
        "I am sorry to hear that.",
    ),
    (
        Wordings(
            ("i am happy[.| today!]", "what a fine day!", "i feel great.", "it is my birthday!"),
            ("today i feel happy!", "what a great day it was!", "i had a fine day."),
        ),
        "I am glad to hear that.",
    ),
    (
        Wordings(
            ("do you like [music|plays|tea]?", "do you sleep?", "do you eat?", "do you dream?"),
            ("do you like [books|bread]?", "do you ever rest?", "can you dream?"),
        ),
        "I cannot, I am a program.",
    ),
    (
        Wordings(
            ("tell me a story.", "sing a song[.| for me.]", "tell me a joke.", "write a poem."),
            ("make a joke[.|, please.]", "could you tell a story?", "i want to hear a song."),
        ),
        "I am not good at that.",
    ),
)
# Statements with two things, the question for one of them, and the answer.
_IN_MESSAGE: dict[Split, tuple[tuple[str, str], ...]] = {
    "train": (
        ("my [dog|cat|horse] is called {x}. what is its name?", "{x}"),
        ("my name is {x}. what is my name?", "{x}"),
        ("i am {x}. who am i?", "{x}"),
        ("{x} is my friend and {y} is my boss. who is my friend?", "{x}"),
        ("{x} is my friend and {y} is my boss. who is my boss?", "{y}"),
        ("i have {a} cats and {b} dogs. how many cats do i have?", "{a}"),
        ("i have {a} cats and {b} dogs. how many dogs do i have?", "{b}"),
        ("{x} lives in {p}. where does {x} live?", "{p}"),
        ("i was born in {p}. where was i born?", "{p}"),
        ("the code is {a}. say the code.", "{a}"),
        ("the train leaves from gate {a}. which gate?", "{a}"),
        ("i am called {x}. what am i called?", "{x}"),
        ("{x} met {y}. whom did {x} meet?", "{y}"),
        ("my room is number {a}. what number is my room?", "{a}"),
        ("i saw {x}, then {y}. who was second?", "{y}"),
        ("i saw {x}, then {y}. who was first?", "{x}"),
        ("she has {a} birds and {b} mice. how many birds?", "{a}"),
    ),
    "test": (
        ("{x} came from {p} today. where did {x} come from?", "{p}"),
        ("i met {x} and then {y}. whom did i meet first?", "{x}"),
        ("the number of my room is {a}. which room is it?", "{a}"),
        ("they call me {x}. so what is my name?", "{x}"),
        ("she owns {a} cats, and also {b} dogs. what number of cats?", "{a}"),
    ),
}
_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("Rex", "Anna", "Tom", "Bella", "Max", "Romeo", "Portia", "Henry", "Rosa", "Paul"),
    "test": ("Bruno", "Laura", "Edgar", "Nora", "Hamlet", "Viola"),
}
_PLACES: dict[Split, tuple[str, ...]] = {
    "train": ("Rome", "Paris", "London", "Venice", "Athens", "Verona", "Milan", "York"),
    "test": ("Padua", "Vienna", "Troy", "Lima"),
}


def wordings(split: Split) -> list[str]:
    """Every way to say it, with `SLOT` for names, places and numbers."""
    patterns = tuple(pattern for pattern, _ in _IN_MESSAGE[split])
    return [
        *(said for forms, _ in _TALK for said in forms.all(split, is_closed=False)),
        *Wordings(patterns, patterns).all(split),
    ]


def talk(split: Split, dice: Dice) -> Task:
    """Small talk."""
    forms, answer = dice.pick(_TALK)
    pattern = dice.pick(forms.of(split))
    return Task("talk", phrase(pattern, split, dice, is_closed=False), answer)


def in_message(split: Split, dice: Dice) -> Task:
    """A question that the message itself answers."""
    pattern, answer = dice.pick(_IN_MESSAGE[split])
    first, second = dice.shuffled(_NAMES[split])[:2]
    values = {
        "x": first,
        "y": second,
        "p": dice.pick(_PLACES[split]),
        "a": whole_number(split, dice, 3),
        "b": whole_number(split, dice, 3),
    }
    request = phrase(pattern, split, dice, **values)
    return Task("in message", request, fill(answer, values) + ".")

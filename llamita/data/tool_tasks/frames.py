"""What people say before and after a request, whatever it is: "ok, …", "…, thanks".

In the training split any of it stands around any request, so that no such word gives away a kind.
"""

from __future__ import annotations

import re

from llamita.data.tool_tasks.dice import Dice

_OPENED = 0.3
_CLOSED = 0.3
_BARE_END = 0.2  # how often a full stop or a question mark is left out

OPENERS = (
    *("hey, ", "hi, ", "hello, ", "hey there, ", "hi there, ", "good morning, ", "good day, "),
    *("ok, ", "okay, ", "well, ", "right, ", "alright, ", "now, ", "then, ", "next, ", "and "),
    *("listen, ", "look, ", "um, ", "ah, ", "hm, ", "yes, ", "no, ", "sorry, ", "see, "),
    *("please, ", "quick one: ", "next one: ", "last one: ", "another one: ", "one thing: "),
    *("thanks, next: ", "thank you, and now: ", "great, now: ", "good, then: ", "assistant, "),
    *("dear assistant, ", "my friend, ", "pardon, ", "by the way, ", "for my work: "),
    *("if you could, ", "be so kind: ", "in a hurry: ", "back again: ", "first of all: "),
    *("i forgot: ", "tired today, but ", "bye for now, but first: ", "i am sad, but "),
)
# Those that begin with a full stop are said after the request, the others within its sentence.
CLOSERS = (
    *(", please", ", please", ", thanks", ", thanks", ", thank you", ", when you can", " now"),
    *(" right now", ", as far as you can", ", ok", ", my friend", ", will you", ", dear", " again"),
    *(", as soon as you can", ", assistant", " at last", ", please and thanks", ", right away"),
    *(", just this once", ", when you may", ", quickly", ", and thanks", " this time", ", quick"),
    *(". thanks!", ". thank you so much.", ". no hurry.", ". i am in a hurry.", ". that is all."),
    *(". it is for school.", ". i have to go soon.", ". very kind.", ". bye!", ". good night."),
)
_END = re.compile(r"[.?!]*$")
# What is copied word by word up to the end: what followed would belong to it. Nor does anything
# follow a question that an equals sign asks.
_FREE_END = re.compile(r"(?:\{(?:note|deed|label|x)\}|=)[.?! ]*$")
_FREE_START = re.compile(r"\{(?:note|deed)\}")
_SENTENCE = re.compile(r"(?<=[.?!] )[a-z]")


def framed(text: str, dice: Dice, is_closed: bool) -> str:
    """A request with an opener, a closer, both, or neither; its end may lose its mark.

    text: with its slots open.
    """
    if dice.chance(_OPENED) and may_open(text):
        text = dice.pick(OPENERS) + text
    if not may_close(text):
        return text
    if is_closed and dice.chance(_CLOSED):
        text = _close(text, dice.pick(CLOSERS))
    return text.rstrip(".?!") if dice.chance(_BARE_END) else text


def may_open(text: str) -> bool:
    """Whether an opener may stand before a request."""
    return not _FREE_START.match(text)


def may_close(text: str) -> bool:
    """Whether a closer may follow a request."""
    return not _FREE_END.search(text)


def sentences(text: str) -> str:
    """A text with a capital after each full stop."""
    return _SENTENCE.sub(lambda letter: letter[0].upper(), text)


def _close(text: str, closer: str) -> str:
    if not closer.startswith("."):
        end = _END.search(text)
        assert end is not None  # it may be empty
        return text[: end.start()] + closer + end[0]
    return text + (closer[1:] if text.endswith((".", "?", "!")) else closer)

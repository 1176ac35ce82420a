"""Words that nobody knows: what is made of them can be copied, and cannot be learned by heart.

They look English, so that a tokenizer cuts them as it cuts the words of people.
"""

from __future__ import annotations

from llamita.data.tool_tasks.common_words import COMMON
from llamita.data.tool_tasks.dice import Dice

_ONSETS = (
    *("b", "bl", "br", "c", "ch", "cl", "cr", "d", "dr", "f", "fl", "fr", "g", "gl", "gr", "h"),
    *("j", "k", "kn", "l", "m", "n", "p", "ph", "pl", "pr", "qu", "r", "s", "sc", "sk", "sl"),
    *("sm", "sn", "sp", "spr", "st", "str", "sw", "t", "th", "tr", "tw", "v", "w", "wh", "wr"),
    *("y", "z", ""),
)
_INNER = (
    *("b", "bb", "c", "ck", "d", "dd", "f", "g", "gg", "l", "ll", "m", "mm", "n", "nn", "p"),
    *("pp", "r", "rr", "s", "ss", "t", "tt", "v", "z", "nd", "nt", "mb", "mp", "lt", "ld", "rn"),
    *("rt", "rl", "st", "sh", "th", "nk", "nch", "tch", "br", "dr", "ct", "x"),
)
_VOWELS = (
    *("a", "e", "i", "o", "u", "a", "e", "i", "o", "ai", "ay", "ea", "ee", "ei", "ie", "oa"),
    *("oi", "oo", "ou", "ow", "au", "y"),
)
_CODAS = (
    *("b", "ck", "d", "ft", "g", "k", "l", "ld", "ll", "lt", "m", "mp", "n", "nd", "ng", "nk"),
    *("nt", "p", "r", "rd", "rk", "rm", "rn", "rt", "s", "sh", "sk", "ss", "st", "t", "th"),
    *("tch", "x", "ze", "ne", "te", "le", "me", "de", "ke"),
)
_SUFFIXES = (
    *("er", "ing", "ment", "ly", "ton", "ville", "ish", "or", "ette", "ness", "ful", "let"),
    *("ard", "age", "ance", "ation", "ous", "ism", "ist", "ity", "able", "al", "ant", "ary"),
    *("ed", "en", "ern", "ery", "est", "et", "ey", "ian", "ible", "ic", "id", "in", "ine"),
    *("ion", "ive", "le", "less", "ling", "man", "on", "ot", "ow", "ship", "some", "ster"),
    *("sy", "tion", "ure", "us", "ward", "well", "wood", "y", "by", "dale", "field", "ford"),
    *("ham", "ley", "stone", "worth", "o", "a", "io", "ia", "elle", "ers", "ings"),
)
_VOWEL_LETTERS = "aeiouy"
_SPLICED = 0.4  # of two words that there are: that meets the pieces which words are cut into


def invented(dice: Dice) -> str:
    """A word such as "plonter", of two syllables or more, or "thouster", of parts of two words."""
    if dice.chance(_SPLICED):
        return dice.pick(COMMON)[: 2 + dice.below(3)] + dice.pick(COMMON)[-2 - dice.below(3) :]
    word = dice.pick(_ONSETS) + dice.pick(_VOWELS)
    while dice.chance(0.25) and len(word) < 6:
        word += dice.pick(_INNER) + dice.pick(_VOWELS)
    if dice.chance(0.7):
        end = suffix(dice)
        return word + dice.pick(_INNER if end[0] in _VOWEL_LETTERS else _CODAS) + end
    return word + dice.pick(_INNER) + dice.pick(_VOWELS) + dice.pick(_CODAS)


def suffix(dice: Dice) -> str:
    """An end of words, such as "ment"."""
    return dice.pick(_SUFFIXES)


def invented_name(dice: Dice) -> str:
    """A name such as "Brandot"."""
    return invented(dice).capitalize()

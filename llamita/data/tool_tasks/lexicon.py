"""The words of exercises: common ones, and those that a tokenizer has tokens of its own for.

What a model has never said it cannot copy: a token that no conversation has keeps the row of the
table that it began with. So whoever teaches a model lets the exercises have its tokenizer's words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.invented import invented, suffix
from llamita.data.tool_tasks.words import loose_words, things_of_test
from llamita.tokenizer import Tokenizer

_OWN_WORDS, _OWN_SPLICED = 0.7, 0.5


@dataclass(frozen=True)
class Lexicon:
    """`own`: the tokenizer's words; none of them is a thing of the test split."""

    own: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: Iterable[str]) -> Lexicon:
        """With these words, as far as they are no things of the test split."""
        things = things_of_test()
        return cls(tuple(dict.fromkeys(word for word in words if word.lower() not in things)))

    def word(self, dice: Dice) -> str:
        """A word."""
        own = self.own if self.own and dice.chance(_OWN_WORDS) else loose_words()
        return dice.pick(own)

    def invented(self, dice: Dice) -> str:
        """A word that there is not; often one of `own` with another end."""
        if not self.own or not dice.chance(_OWN_SPLICED):
            return invented(dice)
        end = suffix(dice) if dice.chance(0.5) else dice.pick(self.own)[-2 - dice.below(3) :]
        return dice.pick(self.own) + end


def words_of(tokenizer: Tokenizer) -> list[str]:
    """The words of two letters or more that are tokens together with the space before them."""
    found = []
    for token_id in range(tokenizer.vocab_size):
        text = tokenizer.token_bytes(token_id).decode("utf-8", "replace")
        if text.startswith(" ") and len(text) > 2 and text[1:].isalpha():
            found.append(text[1:])
    return found

"""Constrained decoding: only tokens that keep the text inside a grammar may be drawn.

llguidance does the parsing; this module gives it the bytes of each token, whatever the kind of the
tokenizer, and keeps its promise: a text that finishes with "stop" matches its grammar.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from llamita.tokenizer.base import Tokenizer

if TYPE_CHECKING:
    from llamita.inference.params import SamplingParams

Mask: TypeAlias = "NDArray[np.uint32]"
"""Bit `id % 32` of word `id // 32` is set where a token may come next; [ceil(V / 32)]."""


class Matcher:
    """How far one text has come in its grammar."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow: the text ends here without a stop token."""
        raise NotImplementedError

    def mask(self) -> Mask:
        """The tokens that may come next, V the tokenizer's vocabulary; a fresh array.

        The stop tokens are among them exactly where the text may end. Not to be asked when
        `is_complete`.

        Raises:
            GenerationError: no token may: the vocabulary cannot write what must come.
        """
        raise NotImplementedError

    def accept(self, token_id: int) -> None:
        """Go on by a token that `mask` allowed."""
        raise NotImplementedError

    def copy(self) -> Matcher:
        """A matcher at the same place that goes its own way."""
        raise NotImplementedError


class Constraint:
    """A grammar, compiled for a vocabulary and a set of stop tokens."""

    def start(self, prompt: Sequence[int]) -> Matcher:
        """A matcher for the text that follows the prompt (token ids, as the row has them).

        Raises:
            GenerationError: the prompt ends in the middle of a character.
        """
        raise NotImplementedError


def compile_constraint(
    params: SamplingParams, tokenizer: Tokenizer | None, stop_token_ids: Collection[int]
) -> Constraint | None:
    """The constraint that `schema`, `regex`, `grammar` or `choices` of the settings ask for.

    Cheap when asked again for the same tokenizer and the same text of a grammar.

    Raises:
        GenerationError: a bad grammar, one the vocabulary cannot write, or no tokenizer.
    """
    return None

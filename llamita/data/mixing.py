"""From which of several sources the next row comes: in turn, as their weights say.

Smooth weighted round robin: each source earns its weight at every draw, and the one with the most
credit is drawn and pays for all. No source is ever more than one draw a source away from its share,
and after as many draws as the weights add up to, each has had exactly its weight. So with the
numbers of their rows as weights all sources end their epochs together. Nothing is left to chance
here (the seed orders the rows within each source), and the state is how often each was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamita.errors import DataError

_PARTS = 1_000_000
"""What shares are counted in: they are integers, so that draws are the same on every machine."""


class Mixture:
    """Draws numbers of sources. `drawn[i]` is how often source i came so far.

    Args:
        weights: positive integers, one a source.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self.weights = list(weights)
        self.drawn = [0] * len(self.weights)
        self._total = sum(self.weights)

    def draw(self) -> int:
        """The number of the source whose turn it is."""
        turn = sum(self.drawn) + 1
        credits_ = [
            turn * weight - self._total * drawn
            for weight, drawn in zip(self.weights, self.drawn, strict=True)
        ]
        source = credits_.index(max(credits_))
        self.drawn[source] += 1
        return source


def integer_weights(weights: Sequence[float]) -> list[int]:
    """Weights as whole numbers in the same proportions, to a millionth of their sum.

    Raises:
        DataError: one is not above zero.
    """
    for weight in weights:
        if not 0 < weight < float("inf"):
            raise DataError(
                f"a weight of the data is {weight:g}; it must be above 0.",
                hint="Leave out the data that is not to count.",
            )
    total = sum(weights)
    return [max(1, round(weight / total * _PARTS)) for weight in weights]

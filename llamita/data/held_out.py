"""Which documents are held out for validation: decided by a hash of the text alone.

So a document is on the same side whatever the order, the seed or the rest of the corpus, and the
same text under two names is never on both sides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from llamita.errors import DataError
from llamita.text.documents import Document


class OneSidedError(DataError):
    """All documents of a text fall on one side of the split."""


def is_held_out(text: str, val_fraction: float) -> bool:
    """Whether a (cleaned) text belongs to `val`: true for about `val_fraction` of all texts."""
    return _place(text) < val_fraction


def fraction_near(texts: Iterable[str], wanted: float) -> float:
    """`wanted`, or the fraction next to it that leaves something on both sides of the split; 0
    where all texts are one."""
    lowest, highest = 1.0, 0.0
    above, below = 1.0, 0.0  # the second lowest, and the second highest
    for place in map(_place, texts):
        if place < lowest:
            lowest, above = place, lowest
        elif lowest < place < above:
            above = place
        if place > highest:
            highest, below = place, highest
        elif below < place < highest:
            below = place
    if lowest < wanted <= highest:
        return wanted
    if lowest >= highest:
        return 0.0
    return (lowest + above) / 2 if wanted <= lowest else (below + highest) / 2


def _place(text: str) -> float:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return float(int.from_bytes(digest[:8], "big") / 2**64)


def require_both_sides(documents: Iterable[Document], val_fraction: float) -> None:
    """Read until there is a document on each side of the split (on the training side alone when
    nothing is to be held out).

    Raises:
        DataError: no document is left.
        OneSidedError: there is none on one side; the message has the number of documents.
    """
    missing = {True, False} if val_fraction > 0 else {False}
    count = 0
    for document in documents:
        count += 1
        missing.discard(is_held_out(document.text, val_fraction))
        if not missing:
            return
    if count == 0:
        raise DataError("no document is left after cleaning: the text is all whitespace.")
    side = "training" if True in missing else "held-out"
    found = "the only document falls" if count == 1 else f"all {count:,} documents fall"
    raise OneSidedError(
        f"{found} on the {side} side of the split (--val-fraction {val_fraction:g}, by a hash of "
        "each document).",
        hint="Give more documents, or cut long ones at blank lines with --max-document-chars "
        "20000, or change --val-fraction (0 holds nothing out).",
    )

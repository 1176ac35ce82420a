"""SentencePiece BPE in a tokenizer.json: what its merges are as scores, if they are any.

SentencePiece and llama.cpp join the two neighbours whose joint piece has the highest score; a
tokenizer.json joins the two that stand first in its list of merges. Both do the same where all
pairs that join to one piece stand together in the list, and none is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llamita.tokenizer.definition import SPACE_TO_MARK, flatten
from llamita.tokenizer.files import TOKENIZER_MODEL
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from llamita.tokenizer.surface import SPACE_MARK

PREPEND = {"type": "Prepend", "prepend": SPACE_MARK}


def pieces_behind(tokenizer: HFTokenizer) -> Any | None:
    """The SentencePiece model beside a tokenizer.json that was made from it; else None."""
    model = tokenizer.side_files.get(TOKENIZER_MODEL)
    if model is None:
        return None
    source = SentencePieceTokenizer(model, tokenizer.side_files, path=Path(TOKENIZER_MODEL))
    made, given = source.definition(), tokenizer.definition()
    same = all(made[part] == given.get(part) for part in ("normalizer", "pre_tokenizer", "model"))
    return source.proto if same else None


def space_prefix(definition: dict[str, Any]) -> bool | None:
    """Whether a tokenizer.json puts a space in front of texts; None if it does more than that."""
    if definition.get("pre_tokenizer") is not None:
        return None
    model = definition["model"]
    if model.get("dropout") or model.get("ignore_merges") or not model.get("byte_fallback"):
        return None
    steps = list(flatten(definition.get("normalizer"), "normalizers"))
    if steps == [SPACE_TO_MARK]:
        return False
    return True if steps == [PREPEND, SPACE_TO_MARK] else None


def merge_scores(
    tokens: Sequence[str], merges: Sequence[str | Sequence[str]]
) -> dict[str, float] | None:
    """Scores of `tokens` that do what `merges` do, or None where none can.

    Args:
        tokens: those that are text.
        merges: pairs, or "left right", best first.
    """
    pairs = [tuple(merge.split(" ", 1)) if isinstance(merge, str) else merge for merge in merges]
    known = set(tokens)
    scores: dict[str, float] = {}
    latest = None
    for left, right in pairs:
        piece = left + right
        if not {left, right, piece} <= known:
            return None
        if piece != latest and piece in scores:
            return None
        scores.setdefault(piece, -float(len(scores)))
        latest = piece
    possible = sum(
        piece[:cut] in known and piece[cut:] in known
        for piece in known
        for cut in range(1, len(piece))
    )
    if possible != len(pairs) or len({(left, right) for left, right in pairs}) != len(pairs):
        return None
    for piece in tokens:
        scores.setdefault(piece, -float(len(scores)))
    return scores

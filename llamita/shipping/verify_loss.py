"""What rounding costs: bits per byte of a text before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from llamita.errors import LlamitaError
from llamita.evaluation.bits_per_byte import BitsPerByte, bits_per_byte
from llamita.inference.lm import LM
from llamita.shipping.verify_tokenizers import PAGE
from llamita.tokenizer.base import Tokenizer


def compare_bits_per_byte(
    before: LM,
    after: LM,
    texts: Sequence[str] | None,
    differences: list[str],
    notes: list[str],
) -> dict[str, Any] | None:
    """Of both models, on the page and on `texts`; a loss no rounding explains is a difference.

    None where there is nothing to measure on.
    """
    if before.tokenizer is None or after.tokenizer is None:
        notes.append("no bits per byte: there is no tokenizer.")
        return None
    page = _kept_lines(before.tokenizer)
    measured = _measure(before, after, page, differences, notes) or {}
    if texts is not None:
        measured["text"] = _measure(before, after, texts, differences, notes)
    return measured or None


def largest_loss(before: BitsPerByte, vocab_size: int) -> float:
    """How many more bits per byte are still the same model, rounded.

    A model that knows nothing pays log2(vocab_size) a token. Whoever loses half of the way from
    there is broken; blocks of 4 bits lose a few percent of it. A model near that line (or beyond:
    fresh ones are) may lose a tenth of it.
    """
    nothing = before.tokens * math.log2(vocab_size) / before.bytes
    return max(0.5 * (nothing - before.bits_per_byte), 0.1 * nothing)


def _measure(
    before: LM, after: LM, texts: Sequence[str], differences: list[str], notes: list[str]
) -> dict[str, Any] | None:
    assert before.tokenizer is not None
    assert after.tokenizer is not None
    try:
        left = bits_per_byte(before.model, before.tokenizer, texts)
        right = bits_per_byte(after.model, after.tokenizer, texts)
    except LlamitaError as error:
        notes.append(f"no bits per byte: {error.message}")
        return None
    loss = right.bits_per_byte - left.bits_per_byte
    if not loss <= largest_loss(left, before.config.vocab_size):
        differences.append(
            f"bits per byte rise from {left.bits_per_byte:.4f} to {right.bits_per_byte:.4f}: more "
            "than half of what the model knows is lost."
        )
    return {"before": left.bits_per_byte, "after": right.bits_per_byte, "bytes": left.bytes}


def _kept_lines(tokenizer: Tokenizer) -> list[str]:
    """Lines of the page that the tokenizer gives back as they were."""
    lines = []
    for line in PAGE.splitlines(keepends=True):
        try:
            if tokenizer.decode(tokenizer.encode(line)) == line:
                lines.append(line)
        except LlamitaError:
            continue
    return lines

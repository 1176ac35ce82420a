"""The patterns that split text before byte-level BPE, and where text may be cut without harm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

# By the names that llama.cpp gives them (`tokenizer.ggml.pre`).
PRE_TOKENIZERS = {
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}
_LINE_END = re.compile(r"\n(?=[^\W_])")


def splits_at_line_ends(definition: dict[str, Any]) -> bool:
    """Whether a tokenizer.json splits text wherever a line end stands before a letter or digit.

    The qwen2 pattern does: in none of its matches does anything but a line end follow one. Such
    texts can be cut there, and the ids of the parts are the ids of the whole.
    """
    if definition.get("normalizer") is not None or definition["model"].get("type") != "BPE":
        return False
    if any(not token.get("special") for token in definition.get("added_tokens") or []):
        return False
    steps = (definition.get("pre_tokenizer") or {}).get("pretokenizers") or []
    if len(steps) != 2 or steps[1].get("type") != "ByteLevel":
        return False
    split, byte_level = steps
    return (
        split.get("pattern") == {"Regex": PRE_TOKENIZERS["qwen2"]}
        and split.get("behavior") == "Isolated"
        and not split.get("invert")
        and not byte_level.get("add_prefix_space")
        and not byte_level.get("use_regex")
    )


def cut_at_line_ends(text: str, length: int) -> Iterator[str]:
    """Parts of `text` of at least `length` characters, cut where `splits_at_line_ends` allows."""
    start = 0
    while match := _LINE_END.search(text, start + length - 1):
        yield text[start : match.end()]
        start = match.end()
    yield text[start:]

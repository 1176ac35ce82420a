"""Tokenizers made from others."""

from __future__ import annotations

import json
from pathlib import Path

from llamita.tokenizer import Tokenizer, load_tokenizer


def with_added(tokenizer: Tokenizer, folder: Path, *tokens: tuple[str, bool]) -> Tokenizer:
    """A copy with tokens behind its own: their text, and whether they are control tokens."""
    tokenizer.save(folder)
    path = folder / "tokenizer.json"
    definition = json.loads(path.read_text(encoding="utf-8"))
    for number, (content, special) in enumerate(tokens):
        definition["added_tokens"].append(
            {
                "id": tokenizer.vocab_size + number, "content": content, "special": special,
                "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            }
        )  # fmt: skip
    path.write_text(json.dumps(definition, ensure_ascii=False), encoding="utf-8")
    return load_tokenizer(folder)

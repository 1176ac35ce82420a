"""Files of other systems, made of small tokenizers, and a plain BPE to judge by."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import regex

from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.surface import byte_level_bytes

# As Meta's loader has it.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def ranks_of(tokenizer: HFTokenizer, control: int) -> list[bytes]:
    """The bytes of the ordinary tokens by rank; the first `control` ids are control tokens."""
    return [
        byte_level_bytes(tokenizer.token_strings[token_id])
        for token_id in range(control, tokenizer.vocab_size)
    ]


def tiktoken_file(ranks: list[bytes]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(ranks))


def tiktoken_ids(ranks: list[bytes], text: str) -> list[int]:
    """What tiktoken does, without its speed: each word whole, or joined by the lowest rank."""
    known = {token: rank for rank, token in enumerate(ranks)}
    ids = []
    for word in regex.findall(PATTERN, text):
        data = word.encode()
        parts = [data] if data in known else [bytes([byte]) for byte in data]
        while len(parts) > 1:
            joined = [known.get(a + b, len(known)) for a, b in pairwise(parts)]
            lowest = min(joined)
            if lowest == len(known):
                break
            at = joined.index(lowest)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        ids += [known[part] for part in parts]
    return ids


def change_definition(directory: Path, **changes: Any) -> None:
    """Set top-level keys of a tokenizer.json."""
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))

"""Which ids begin, end and pad a text, from the small files beside a tokenizer.

The names stand in `tokenizer_config.json`, in older directories in `special_tokens_map.json`; a
bare `tokenizer.json` says nothing, so the usual names are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

ROLE_FILES = ("tokenizer_config.json", "special_tokens_map.json")
"""Where roles stand, the first of them before the second."""

USUAL_NAMES = {
    "bos": ("<s>", "<|begin_of_text|>", "<|endoftext|>", "<bos>", "<|startoftext|>"),
    "eos": ("</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>", "<|im_end|>"),
    "pad": ("<pad>", "<|pad|>", "[PAD]"),
}


def token_name(entry: Any) -> str | None:
    """The text of a token entry: a string, or a dictionary with `content`."""
    if isinstance(entry, Mapping):
        entry = entry.get("content")
    return entry if isinstance(entry, str) else None


def find_role(
    role: str,
    sources: list[Mapping[str, Any]],
    generation: Mapping[str, Any],
    token_to_id: Callable[[str], int | None],
) -> int | None:
    """The id of the `role` ("bos", "eos", "pad" or "unk") token, or None.

    Where `sources` name any of the three, the first that has the key `ROLE_token` decides, even
    by a null. Where they name none, `generation_config.json` may give an id (the first of a
    list), and then the usual names count.
    """
    for source in sources:
        if f"{role}_token" in source:
            name = token_name(source[f"{role}_token"])
            return None if name is None else token_to_id(name)
    if any(f"{other}_token" in source for source in sources for other in USUAL_NAMES):
        return None
    given = generation.get(f"{role}_token_id")
    if isinstance(given, list):
        given = given[0] if given else None
    if isinstance(given, int):
        return given
    candidates = (token_to_id(name) for name in USUAL_NAMES.get(role, ()))
    return next((token_id for token_id in candidates if token_id is not None), None)

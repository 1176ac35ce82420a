"""The files a tokenizer consists of on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llamita.errors import TokenizerError
from llamita.files import atomic_write_bytes, read_bounded

TOKENIZER_JSON = "tokenizer.json"
TOKENIZER_MODEL = "tokenizer.model"
LARGEST_FILE = 64_000_000
"""Bytes: twice the largest tokenizer.json in use."""

SIDE_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    TOKENIZER_MODEL,
)


def read_side_files(directory: Path) -> dict[str, bytes]:
    """The files beside a tokenizer.json that belong to it, by name."""
    paths = [directory / name for name in SIDE_FILES]
    paths += sorted((directory / "additional_chat_templates").glob("*.jinja"))
    return {
        path.relative_to(directory).as_posix(): read_bounded(path, LARGEST_FILE, TokenizerError)
        for path in paths
        if path.is_file()
    }


def write_tokenizer_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the files, and remove those that an earlier tokenizer left in `directory`."""
    for name, data in files.items():
        atomic_write_bytes(directory / name, data)
    templates = (directory / "additional_chat_templates").glob("*.jinja")
    named = [path.relative_to(directory).as_posix() for path in templates]
    for name in (TOKENIZER_JSON, *SIDE_FILES, *named):
        if name not in files:
            (directory / name).unlink(missing_ok=True)


def tokenizer_config(
    *,
    bos_token: str | None,
    eos_token: str | None,
    pad_token: str | None = None,
    unk_token: str | None = None,
    add_bos: bool,
) -> bytes:
    """A tokenizer_config.json that has AutoTokenizer take the tokenizer.json as it is."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos_token,
        "eos_token": eos_token,
        "pad_token": pad_token,
        "unk_token": unk_token,
        "add_bos_token": add_bos,
        "clean_up_tokenization_spaces": False,
    }
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()


def has_tokenizer(directory: Path) -> bool:
    """Whether `directory` holds a tokenizer, readable here or not."""
    return any(
        (directory / name).is_file() for name in (TOKENIZER_JSON, TOKENIZER_MODEL, "merges.txt")
    )

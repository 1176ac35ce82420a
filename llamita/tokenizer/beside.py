"""Finding the tokenizer of a `.pt` file: it lies in the same folder, under no fixed name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from llamita.errors import TokenizerError
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.files import TOKENIZER_JSON, TOKENIZER_MODEL, has_tokenizer

_LARGEST = 64 << 20


def choose_tokenizer(path: Path, vocab_size: int, load: Callable[[Path], Tokenizer]) -> Path | None:
    """The tokenizer in the folder of the file `path`, or None where there is none.

    A `tokenizer.json` (HuggingFace's or ArmGPT's) or `tokenizer.model` that can be read, else
    any other `*.json` of ArmGPT's kind or `*.model`. Of several, the one that has exactly as many
    tokens as the model has embeddings counts, then one that has fewer.

    Args:
        load: reads one file.

    Raises:
        TokenizerError: several fit, or none of them does; the message names them.
    """
    folder = path.parent
    usual = [folder / name for name in (TOKENIZER_JSON, TOKENIZER_MODEL)]
    found = [file for file in usual if file.is_file()]
    if not found:
        found = tokenizer_files(folder)
    if not found and has_tokenizer(folder):
        return folder
    if len(found) < 2:
        return found[0] if found else None
    sizes = dict(_sizes(found, load))
    fitting = [file for file, size in sizes.items() if size == vocab_size]
    fitting = fitting or [file for file, size in sizes.items() if size < vocab_size]
    if len(fitting) == 1:
        return fitting[0]
    if set(fitting) == set(usual):
        return usual[0]  # two forms of one tokenizer, as llamita and others save it
    listed = ", ".join(f"{file.name} ({sizes.get(file, 0):,} tokens)" for file in fitting or found)
    raise TokenizerError(
        f"{folder} holds {'several' if fitting else 'no'} tokenizers that fit the {vocab_size:,} "
        f"embeddings of {path.name}: {listed}.",
        hint="Say which one with --tokenizer PATH.",
    )


def tokenizer_files(folder: Path) -> list[Path]:
    """The files in a folder that look like a tokenizer inside: ArmGPT's `*.json`, `*.model`."""
    others = [*sorted(folder.glob("*.json")), *sorted(folder.glob("*.model"))]
    return [file for file in others if _may_be_tokenizer(file)]


def _may_be_tokenizer(file: Path) -> bool:
    """Whether a file of another name looks like one inside."""
    if not file.is_file() or file.stat().st_size > _LARGEST:
        return False
    if file.suffix == ".model":
        return True
    with file.open("rb") as handle:
        start = handle.read(1 << 16)
    return any(
        f'"type":{space}"{kind}"'.encode() in start
        for space in ("", " ")
        for kind in ("char", "bpe")
    )


def _sizes(files: Iterable[Path], load: Callable[[Path], Tokenizer]) -> Iterable[tuple[Path, int]]:
    for file in files:
        try:
            yield file, load(file).vocab_size
        except TokenizerError:
            continue  # not the model's: another file with the same ending

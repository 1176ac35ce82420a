"""Reading a tokenizer from disk, told apart by content.

Where a directory has both files, `tokenizer.json` counts: it is what `AutoTokenizer` reads, and
only it can hold tokens that were added later. llamita writes it from the `tokenizer.model`, with
the same ids (in unigram models but for ties, which SentencePiece's 32-bit sums break by chance).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamita.errors import TokenizerError
from llamita.files import read_json
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.files import (
    TOKENIZER_JSON,
    TOKENIZER_MODEL,
    has_tokenizer,
    read_side_files,
)
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer

if TYPE_CHECKING:
    from llamita.formats.checkpoint import Checkpoint


def load_tokenizer(path: Path | str) -> Tokenizer:
    """The tokenizer of a directory (a model, or prepared data), or of a single file.

    Raises TokenizerError, naming the path, where there is none or it is damaged.
    """
    path = Path(path)
    if not path.is_dir():
        return _load_file(path, {}, {})
    side_files = read_side_files(path)
    generation_path = path / "generation_config.json"
    generation = read_json(generation_path, TokenizerError) if generation_path.is_file() else {}
    for name in (TOKENIZER_JSON, TOKENIZER_MODEL):
        if (path / name).is_file():
            return _load_file(path / name, side_files, generation)
    if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        raise TokenizerError(
            f"{path} has a tokenizer in the old form vocab.json and merges.txt.",
            hint="Load it once with transformers.AutoTokenizer and save it: that writes "
            "tokenizer.json.",
        )
    raise TokenizerError(
        f"there is no tokenizer in {path}.",
        hint=f"A directory with {TOKENIZER_JSON} or {TOKENIZER_MODEL} is needed.",
    )


def checkpoint_tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer that belongs to a checkpoint, or None where it has none."""
    source = checkpoint.tokenizer
    if not isinstance(source, Path) or (source.is_dir() and not has_tokenizer(source)):
        return None
    return load_tokenizer(source)


def _load_file(path: Path, side_files: dict[str, bytes], generation: dict[str, Any]) -> Tokenizer:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TokenizerError(f"there is no file {path}.") from None
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror}.") from error
    if not data:
        raise TokenizerError(f"{path} is empty.")
    if data.lstrip()[:1] == b"{":
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerError(
                f"{path} is a damaged tokenizer.json: it is not UTF-8: {error}."
            ) from error
        return HFTokenizer(text, side_files, generation=generation, path=path)
    if path.suffix == ".json":
        raise TokenizerError(f"{path} is a damaged tokenizer.json: it holds no JSON object.")
    if _is_tiktoken(data):
        raise TokenizerError(
            f"{path} is a tiktoken file of token ranks (Llama 3), which llamita cannot read.",
            hint="Use the tokenizer.json of the same model.",
        )
    return SentencePieceTokenizer(data, side_files, path=path)


def _is_tiktoken(data: bytes) -> bool:
    """Whether the first line is a token in base64 and its rank."""
    first = data[:200].split(b"\n", 1)[0].split()
    return len(first) == 2 and first[1].isdigit() and first[0].isascii()

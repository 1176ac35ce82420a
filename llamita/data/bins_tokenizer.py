"""The tokenizer of token bins: it lies beside them, under no fixed name."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from llamita.errors import DataError, TokenizerError
from llamita.files import read_bounded
from llamita.tokenizer.armgpt import read_armgpt
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.beside import tokenizer_files
from llamita.tokenizer.files import has_tokenizer
from llamita.tokenizer.load import load_tokenizer

META = "meta.pkl"
_LARGEST_META = 16_000_000


def find_tokenizer(folder: Path, kind: str, tokens: Path) -> Tokenizer:
    """The tokenizer in the folder of token bins.

    Args:
        kind: "char" or "bpe", where the bins are named so: then ArmGPT's tokenizer is of it.
        tokens: the file of tokens, for messages.

    Raises:
        DataError: there is none, or several.
        TokenizerError: it is damaged.
    """
    if has_tokenizer(folder):
        return load_tokenizer(folder)
    found = {}
    for file in tokenizer_files(folder):
        tokenizer = load_tokenizer(file)
        if not kind or (tokenizer.kind == "char") == (kind == "char"):
            found[file] = tokenizer
    if len(found) == 1:
        [tokenizer] = found.values()
        return tokenizer
    if found:
        names = ", ".join(file.name for file in found)
        raise DataError(
            f"several tokenizers lie beside {tokens.as_posix()}: {names}.",
            hint="Name the one that made the tokens tokenizer.json, or take the others away.",
        )
    if (folder / META).is_file():
        return _read_meta(folder / META)
    raise DataError(
        f"there is no tokenizer beside {tokens.as_posix()}"
        + (f" of the kind {kind}." if kind else "."),
        hint="Copy into its folder the tokenizer JSON that made the tokens: ArmGPT's own, or a "
        f"tokenizer.json (for nanoGPT's GPT-2 tokens, GPT-2's), or nanoGPT's {META}.",
    )


def _read_meta(path: Path) -> Tokenizer:
    """nanoGPT's table of characters. It is a pickle: read as data, nothing in it is ever run."""
    from llamita.formats.pickled import load_pickle
    from llamita.formats.torch_records import MoreThanWeights

    hint = "Write its itos as JSON beside the tokens: " + (
        '{"type": "char", "itos": {"0": "a", …}} in tokenizer.json'
    )
    data = read_bounded(path, _LARGEST_META, DataError)
    try:
        meta: Any = load_pickle(BytesIO(data))
    except MoreThanWeights as error:
        raise DataError(
            f"{path.as_posix()} holds more than a table of characters ({error}), which would take "
            "running code from it.",
            hint=hint,
        ) from error
    except ValueError as error:
        raise DataError(f"{path.as_posix()} is a damaged pickle: {error}.", hint=hint) from error
    tables = meta if isinstance(meta, dict) else {}
    itos, stoi = tables.get("itos"), tables.get("stoi")
    if not isinstance(itos, dict) or not all(isinstance(key, int) for key in itos):
        raise DataError(
            f"{path.as_posix()} has no itos, the table from ids to characters.", hint=hint
        )
    content = {"type": "char", "itos": {str(key): value for key, value in itos.items()}}
    if stoi is not None:
        content["stoi"] = stoi
    if isinstance(tables.get("vocab_size"), int):
        content["vocab_size"] = tables["vocab_size"]
    try:
        return read_armgpt(content, {}, path)
    except TokenizerError as error:
        raise DataError(error.message, hint=hint) from error

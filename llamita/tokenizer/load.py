"""Reading a tokenizer from disk, told apart by content.

Where a directory has both files, `tokenizer.json` counts: it is what `AutoTokenizer` reads, and
only it can hold tokens that were added later. llamita writes it from the `tokenizer.model`, with
the same ids (in unigram models but for ties, which SentencePiece's 32-bit sums break by chance).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamita.errors import TokenizerError
from llamita.files import parse_json, read_bounded, read_json
from llamita.formats.vocabulary import Vocabulary
from llamita.tokenizer.armgpt import is_armgpt, read_armgpt
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.beside import choose_tokenizer
from llamita.tokenizer.chat_files import DEFAULT, TEMPLATE, read_chat_templates
from llamita.tokenizer.chat_templates import BUILT_IN
from llamita.tokenizer.files import (
    LARGEST_FILE,
    TOKENIZER_JSON,
    TOKENIZER_MODEL,
    has_tokenizer,
    read_side_files,
)
from llamita.tokenizer.gguf_vocabulary import from_vocabulary
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from llamita.tokenizer.tiktoken_ranks import is_tiktoken, read_tiktoken
from llamita.tokenizer.vocab_merges import MERGES, VOCAB, read_vocab_and_merges

if TYPE_CHECKING:
    from llamita.formats.checkpoint import Checkpoint

__all__ = ["checkpoint_tokenizer", "find_tokenizer_beside", "load_tokenizer", "tokenizer_of"]

PARAMS = "params.json"
LARGEST_TEMPLATE = 1 << 20


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
    if (path / VOCAB).is_file() and (path / MERGES).is_file():
        return read_vocab_and_merges(path, side_files, generation)
    raise TokenizerError(
        f"there is no tokenizer in {path}.",
        hint=f"A directory with {TOKENIZER_JSON} or {TOKENIZER_MODEL} is needed.",
    )


def tokenizer_of(path: Path | str) -> Tokenizer:
    """The tokenizer of whatever lies at `path`: tokenizer files, or a model in any format.

    Raises:
        LlamitaError: there is none, or it is damaged.
    """
    from llamita.formats.detect import is_run, load_checkpoint
    from llamita.formats.meta_shards import is_meta_directory
    from llamita.formats.sniff import kind_of

    path = Path(path)
    if path.is_dir():
        holds_model = not has_tokenizer(path) or is_meta_directory(path) or is_run(path)
    else:
        holds_model = path.exists() and kind_of(path) is not None
    if not holds_model:
        return load_tokenizer(path)
    checkpoint = load_checkpoint(path)
    tokenizer = checkpoint_tokenizer(checkpoint)
    if tokenizer is None:
        raise TokenizerError(
            f"the model {path} brings no tokenizer.",
            hint=f"Name the file or directory of its tokenizer ({TOKENIZER_JSON}, "
            f"{TOKENIZER_MODEL}).",
        )
    return tokenizer


def checkpoint_tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer that belongs to a checkpoint, or None where it has none.

    Where it brings no chat template, it gets that of the checkpoint's layout, if it has the control
    tokens for it.

    Raises:
        TokenizerError: it is damaged, or has more ids than the model has embeddings.
    """
    source, size = checkpoint.tokenizer, checkpoint.config.vocab_size
    if isinstance(source, Vocabulary):
        tokenizer = from_vocabulary(source, checkpoint.path)
    else:
        if source == checkpoint.path.parent and checkpoint.path.is_file():
            source = find_tokenizer_beside(checkpoint.path, size)
        if source is None or (_is_own(source, checkpoint.path) and not has_tokenizer(source)):
            return None
        tokenizer = _load(source, checkpoint.path)
    if tokenizer.vocab_size > size:
        where = checkpoint.path if isinstance(source, Vocabulary) else source
        raise TokenizerError(
            f"the tokenizer in {where} has {tokenizer.vocab_size:,} tokens; the model in "
            f"{checkpoint.path} has {size:,} (vocab_size).",
            hint="It belongs to another model. Give the right one with --tokenizer PATH.",
        )
    if tokenizer.chat_template is None and isinstance(source, Path) and source.is_file():
        tokenizer = _with_template_beside(tokenizer, source)
    built_in = BUILT_IN.get(checkpoint.chat_format or "")
    if tokenizer.chat_template is not None or built_in is None:
        return tokenizer
    if not set(built_in.control_tokens) <= set(tokenizer.special_tokens):
        return tokenizer  # the template would write them as text
    return tokenizer.with_chat_template(built_in.template)


def _is_own(source: Path, model: Path) -> bool:
    """Whether `source` is the model's folder, which nobody had to name."""
    return source.is_dir() and source in (model, model.parent)


def _load(source: Path, model: Path) -> Tokenizer:
    """The tokenizer at `source`; Meta's, a file in the model's folder, with what lies beside it."""
    if source == model / TOKENIZER_MODEL:
        return _load_file(source, read_side_files(model), {})
    return load_tokenizer(source)


def _with_template_beside(tokenizer: Tokenizer, path: Path) -> Tokenizer:
    """A tokenizer of one file, with the chat template that lies beside it, if one does."""
    beside = path.parent / TEMPLATE
    if not beside.is_file():
        return tokenizer
    data = read_bounded(beside, LARGEST_TEMPLATE, TokenizerError)
    return tokenizer.with_chat_template(read_chat_templates({TEMPLATE: data})[DEFAULT])


def find_tokenizer_beside(path: Path, vocab_size: int) -> Path | None:
    """The tokenizer of a model that is the single file `path`, or None where there is none.

    It is looked for in the file's folder, by content; of several the one counts that fits a model
    of `vocab_size` tokens. Where that is what the whole folder is taken for, it is the folder, so
    that the files beside the tokenizer count as well.

    Raises:
        TokenizerError: several fit, or none of several does; the message names them.
    """
    chosen = choose_tokenizer(path, vocab_size, load_tokenizer)
    first = next((n for n in (TOKENIZER_JSON, TOKENIZER_MODEL) if (path.parent / n).is_file()), "")
    return path.parent if chosen == path.parent / first else chosen


def _load_file(path: Path, side_files: dict[str, bytes], generation: dict[str, Any]) -> Tokenizer:
    data = read_bounded(path, LARGEST_FILE, TokenizerError)
    if not data:
        raise TokenizerError(f"{path} is empty.")
    if data.lstrip()[:1] == b"{":
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerError(
                f"{path} is a damaged tokenizer.json: it is not UTF-8: {error}."
            ) from error
        content = parse_json(text, path, TokenizerError)
        if is_armgpt(content):
            return read_armgpt(content, side_files, path)
        return HFTokenizer(text, side_files, generation=generation, path=path)
    if path.suffix == ".json":
        raise TokenizerError(f"{path} is a damaged tokenizer.json: it holds no JSON object.")
    if is_tiktoken(data):
        scaled = _has_scaled_rope(path.parent / PARAMS)
        return read_tiktoken(data, side_files, scaled=scaled, path=path)
    return SentencePieceTokenizer(data, side_files, path=path)


def _has_scaled_rope(params: Path) -> bool:
    """Whether Meta's params.json beside a tokenizer is of Llama 3.1 or later.

    Then its control tokens have other names than those of 3.0; their ids are the same.
    """
    if not params.is_file():
        return False
    content = read_json(params, TokenizerError)
    return isinstance(content, dict) and bool(content.get("use_scaled_rope"))

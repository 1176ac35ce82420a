"""How to prepare a text that nobody said anything about, and a sample of it for a first look."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from llamita.data.existing import is_prepared
from llamita.data.manifest import Manifest
from llamita.data.prepare import Reporter, prepare
from llamita.errors import TokenizerError
from llamita.text.documents import MAX_DOCUMENT_CHARS, Document, ReadCounts, read_files
from llamita.text.sources import TextFile, find_text_files

# About one token for each so many bytes of text keeps every token seen often enough.
_BYTES_PER_VOCABULARY_ENTRY = 256
_SMALLEST_VOCABULARY, _LARGEST_VOCABULARY = 320, 4096
# Below so many files, whole files cannot be held out fairly: they are cut into so many pieces.
_FEW_FILES = 10
_PIECES = 50
_SHORTEST_PIECE, _LONGEST_PIECE = 60, 20_000
_SPREAD = 16  # a file gives at most this part of a sample, where there are enough others


@dataclass(frozen=True)
class Suggestion:
    """Settings of `prepare`: tokenizers in the order to try, and how long a document may be."""

    tokenizers: tuple[str, ...]
    max_document_chars: int


def suggested_preparation(files: Sequence[TextFile], tokenizer: str | None = None) -> Suggestion:
    """What suits these files, by their sizes; `tokenizer`, where one is asked for.

    A text of few different words has no use for many tokens; characters always do.
    """
    size = sum(file.path.stat().st_size for file in files)
    vocabulary = size // _BYTES_PER_VOCABULARY_ENTRY
    vocabulary = max(_SMALLEST_VOCABULARY, min(vocabulary, _LARGEST_VOCABULARY))
    piece = max(_SHORTEST_PIECE, min(size // _PIECES, _LONGEST_PIECE))
    longest = piece if len(files) < _FEW_FILES else MAX_DOCUMENT_CHARS
    kinds = (f"bpe:{vocabulary}", "char") if tokenizer is None else (tokenizer,)
    return Suggestion(kinds, longest)


def prepare_as_suggested(
    paths: Sequence[Path],
    out: Path,
    suggestion: Suggestion,
    reporter: Reporter | None = None,
    *,
    chat_format: str | None = None,
    tokenizer_also: Sequence[Path] = (),
) -> Manifest:
    """`prepare` with the first of the suggested tokenizers that the text is enough for; where
    `out` was made with one of them, with that.

    chat_format, tokenizer_also: as of `prepare`.

    Raises:
        DataError: as `prepare` does.
        TokenizerError: not even the last can be made.
    """
    kinds = suggestion.tokenizers
    made_with = Manifest.load(out).settings if is_prepared(out) else None
    if made_with is not None and made_with.tokenizer in kinds:
        kinds = (made_with.tokenizer,)
    for kind in kinds:
        try:
            return prepare(
                paths,
                out,
                tokenizer=kind,
                max_document_chars=suggestion.max_document_chars,
                chat_format=chat_format,
                tokenizer_also=tokenizer_also,
                reporter=reporter,
            )
        except TokenizerError:
            if kind == kinds[-1]:
                raise
    raise ValueError("no tokenizer is suggested")


def sample_text(paths: Sequence[Path], limit: int, max_document_chars: int, out: Path) -> float:
    """Write up to about `limit` bytes of text from `paths` to the JSONL file `out`.

    Files come in an order that says nothing about them, and a large one gives its beginning.
    Documents are cut as `prepare` would. Returns the part of the text that was taken: the rest is
    known by its bytes on the disk, of which that of each file held so much text.

    Raises:
        DataError: a file is damaged or no text.
    """
    files = [file for file in find_text_files(paths).files if file.path.stat().st_size]
    total = sum(file.path.stat().st_size for file in files)
    files.sort(key=lambda file: hashlib.sha256(str(file.path.name).encode()).digest())
    most = max(limit // _SPREAD, limit // max(1, len(files)))
    taken, on_disk = 0, 0.0
    with out.open("w", encoding="utf-8") as target:
        for file in files:
            written, share = _write_beginning(file, most, max_document_chars, target)
            taken += written
            on_disk += share * file.path.stat().st_size
            if taken >= limit:
                break
    return min(1.0, on_disk / max(1, total))


def _write_beginning(
    file: TextFile, most: int, max_document_chars: int, target: TextIO
) -> tuple[int, float]:
    """Write documents until they have `most` bytes of text; how many were written, and what part
    of the file's text that is.

    A file is read in chunks, ahead of its documents. So it is read on to the next chunk, when all
    documents of those before are counted: compressed text is many times what lies on the disk.
    """
    counts = ReadCounts()
    written, text, chunks_end = 0, 0, 0
    for document in read_files(
        [file], max_document_chars=max_document_chars, counts=counts, chats=True
    ):
        if counts.bytes_read > chunks_end > 0 and written >= most:
            return written, written / text * chunks_end / file.path.stat().st_size
        chunks_end = counts.bytes_read
        if written < most:
            target.write(_line(document) + "\n")
            written += len(document.text.encode())
        text += len(document.text.encode())
    return written, written / max(1, text)


def _line(document: Document) -> str:
    chat = document.chat
    line = (
        {"text": document.text}
        if chat is None
        else {"messages": chat.messages, "tools": chat.tools}
    )
    return json.dumps(line, ensure_ascii=False)

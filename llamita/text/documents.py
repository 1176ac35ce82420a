"""Documents out of text files, as a stream.

A plain text or Markdown file is one document; a JSONL file holds one in each line: a text in one
field, or a chat (`chats.read_chat` knows its forms). Texts longer than a limit are cut at blank
lines, so that memory stays bounded. Every document is valid Unicode text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamita.errors import DataError
from llamita.text.chat_kinds import EXPECTED, kinds_of
from llamita.text.chats import MESSAGES, Chat, read_chat
from llamita.text.decoding import check_encoding, read_text
from llamita.text.sources import TextFile, find_text_files
from llamita.text.splitting import cut_text

MAX_DOCUMENT_CHARS = 1_000_000
MAX_LINE_CHARS = 1 << 28
SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Document:
    """A text, and where it came from: `book.txt`, `book.txt#2` (second piece), `chats.jsonl:7`.

    Of a chat, `text` is what is said in it. `piece` counts those of a text that was cut.
    """

    text: str
    source: str
    chat: Chat | None = None
    piece: int = 1


@dataclass
class ReadCounts:
    """What happened while reading; updated as documents are taken from the stream."""

    bytes_read: int = 0
    documents: int = 0
    empty_files: int = 0
    cut_documents: int = 0
    replaced_surrogates: int = 0


def read_documents(
    paths: Sequence[Path],
    *,
    field: str = "text",
    encoding: str = "utf-8",
    max_document_chars: int = MAX_DOCUMENT_CHARS,
) -> Iterator[Document]:
    """Stream the documents of files and folders (see `find_text_files`), in a fixed order.

    Args:
        paths: `.txt`, `.md` and `.jsonl` files, also as `.gz` or `.zst`, and folders of them.
        field: the JSONL field that holds the text.
        encoding: of all files.
        max_document_chars: a longer text is cut into several; chats never are.

    Raises:
        DataError: a path is missing, a file is damaged or no text, or there is no document at all.
    """
    files = find_text_files(paths).files
    return read_files(files, field=field, encoding=encoding, max_document_chars=max_document_chars)


def read_files(
    files: Sequence[TextFile],
    *,
    field: str = "text",
    encoding: str = "utf-8",
    max_document_chars: int = MAX_DOCUMENT_CHARS,
    counts: ReadCounts | None = None,
    chats: bool = False,
) -> Iterator[Document]:
    """`read_documents` for files already found, counting into `counts`; with `chats`, chats are
    documents too, and with the field "messages" as well they alone are."""
    check_encoding(encoding)
    if max_document_chars < 1:
        raise DataError(f"max_document_chars is {max_document_chars}; it must be at least 1.")
    counts = counts or ReadCounts()
    return _documents(files, field, encoding, max_document_chars, counts, chats)


def _documents(
    files: Sequence[TextFile],
    field: str,
    encoding: str,
    limit: int,
    counts: ReadCounts,
    chats: bool,
) -> Iterator[Document]:
    bytes_before = 0

    def on_read(bytes_of_file: int) -> None:
        counts.bytes_read = bytes_before + bytes_of_file

    for file in files:
        chunks = read_text(file, encoding, on_read)
        texts: Iterable[tuple[str, Iterable[str] | Chat]]
        texts = [("", chunks)] if file.kind == "text" else _json_texts(file, chunks, field, chats)
        documents_before = counts.documents
        for place, text in texts:
            if isinstance(text, Chat):
                counts.documents += 1
                counts.replaced_surrogates += _replace_surrogates(text.text)[1]
                chat = text.mapped(lambda said: _replace_surrogates(said)[0])
                yield Document(chat.text, f"{file}{place}", chat)
                continue
            for number, piece in enumerate(cut_text(text, limit), start=1):
                counts.documents += 1
                counts.cut_documents += number == 2
                valid, replaced = _replace_surrogates(piece)
                counts.replaced_surrogates += replaced
                source = f"{file}{place}" + (f"#{number}" if number > 1 else "")
                yield Document(valid, source, piece=number)
        counts.empty_files += counts.documents == documents_before
        bytes_before = counts.bytes_read
    if counts.documents == 0:
        names = ", ".join(str(file) for file in files[:3]) + (", …" if len(files) > 3 else "")
        raise DataError(f"there is no text in {names}: nothing to read.")


def _replace_surrogates(text: str) -> tuple[str, int]:
    """Lone surrogates, which a JSON escape ("\\ud83d") can spell, are no characters and have no
    UTF-8: they become U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return SURROGATES.subn("\ufffd", text)
    return text, 0


def _json_texts(
    file: TextFile, chunks: Iterable[str], field: str, chats: bool
) -> Iterator[tuple[str, list[str] | Chat]]:
    """The line number (as `:7`) and the text or chat of each line that is not blank; of a list in
    JSON the place in it (as `[6]`)."""
    if file.kind == "json":
        whole = "".join(chunks)
        if whole.lstrip()[:1] == "[":
            for index, item in enumerate(_items(whole, file)):
                line, place = json.dumps(item), f"[{index}]"
                text = _text_field(line, field, f"{file}{place}", chats)
                yield place, text if isinstance(text, Chat) else [text] if text else []
            return
        chunks = [whole]
    for number, line in enumerate(_lines(file, chunks), start=1):
        if line.isspace() or not line:
            continue
        text = _text_field(line, field, f"{file}:{number}", chats)
        yield f":{number}", text if isinstance(text, Chat) else [text] if text else []


def _items(text: str, file: TextFile) -> list[Any]:
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} begins as a JSON list and is none: {error}.") from None
    return list(items)


def _lines(file: TextFile, chunks: Iterable[str]) -> Iterator[str]:
    """Lines by "\\n" alone: JSON strings may hold the other line separators of Unicode."""
    parts: list[str] = []
    number = 1
    length = 0
    for chunk in chunks:
        first, *others = chunk.split("\n")
        parts.append(first)
        length += len(first)
        if length > MAX_LINE_CHARS:
            raise DataError(
                f"line {number} of {file} is longer than {MAX_LINE_CHARS:,} characters.",
                hint="JSONL has one JSON object in each line; is this another format?",
            )
        if others:
            yield "".join(parts)
            yield from others[:-1]
            number += len(others)
            parts, length = [others[-1]], len(others[-1])
    yield "".join(parts)


def _text_field(line: str, field: str, place: str, chats: bool) -> str | Chat:
    expected = f'Each line must be a JSON object such as {{"{field}": "some text"}}.'
    if chats and field == MESSAGES:
        expected = f"Each line must be a JSON object. {EXPECTED}"
    if line.lstrip()[:1] == "[":
        expected += " A whole list in one file becomes lines by: jq -c '.[]' FILE.json"
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{place} is not JSON: {error.msg} (column {error.colno:,}).", hint=expected
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} cannot be read as JSON: {error}.", hint=expected) from None
    if not isinstance(value, dict):
        raise DataError(f"{place} is {_json_type(value)}, not a JSON object.", hint=expected)
    if field == MESSAGES or value.get(field) is None:
        if not chats and kinds_of(value):
            raise DataError(
                f"{place} is a chat (it has {kinds_of(value)[0]}), where text is wanted.",
                hint="Chats are read by: llamita prepare CHATS.jsonl -o DATA",
            )
        chat = read_chat(value, place)
        if chat is not None:
            return chat
    if field not in value or (chats and field == MESSAGES):
        keys = ", ".join(repr(key) for key in list(value)[:10]) or "none"
        if chats and field == MESSAGES:
            raise DataError(f"{place} is no chat; its fields are: {keys}.", hint=EXPECTED)
        or_chat = f" {EXPECTED}" if chats else ""
        raise DataError(
            f"{place} has no field {field!r}; its fields are: {keys}.",
            hint=f"Name the field that holds the text with --field.{or_chat}",
        )
    text = value[field]
    if not isinstance(text, str):
        raise DataError(f"{place}: the field {field!r} is {_json_type(text)}, not text.")
    return text


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", bool: "true or false", str: "a string"}
    return names.get(type(value), "a number")

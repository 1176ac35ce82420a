"""Stages that bring text into one form without changing what it says.

Normalization happens here and nowhere later: tokenizers take text as it is, so that they can give
it back as it was.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import replace

from llamita.text.documents import Document
from llamita.text.pipeline import Stage


def normalize(documents: Iterator[Document]) -> Iterator[Document]:
    """Unicode NFC (canonical composition: no letter, quote or ligature is replaced), and "\\n" as
    the only newline."""
    for document in documents:
        if document.chat is not None:
            chat = document.chat.mapped(normalize_text)
            yield Document(chat.text, document.source, chat)
            continue
        text = normalize_text(document.text)
        yield document if text is document.text else replace(document, text=text)


def normalize_text(text: str) -> str:
    """NFC, with CRLF and lone CR turned into LF."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return unicodedata.normalize("NFC", text)


def drop_empty(documents: Iterator[Document]) -> Iterator[Document]:
    """Leave out texts that hold nothing but whitespace. An empty chat is a mistake to be named."""
    return (document for document in documents if document.chat or document.text.strip())


CLEANING: tuple[tuple[str, Stage], ...] = (("normalize", normalize), ("drop empty", drop_empty))

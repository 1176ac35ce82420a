"""The files that data is made of: found, hashed, streamed through cleaning more than once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from llamita.data.held_out import is_held_out, require_both_sides
from llamita.data.manifest import Settings, Source
from llamita.errors import DataError
from llamita.files import sha256_file
from llamita.text.clean import CLEANING
from llamita.text.documents import Document, ReadCounts, read_files
from llamita.text.pipeline import Pipeline, StageCounts
from llamita.text.sources import FoundFiles, TextFile, find_text_files

VALIDATION_NAME = "validation.jsonl"
VALIDATION_CHATS_NAME = "validation_chats.jsonl"
HELD_OUT_NAMES = 20


class Reporter:
    """Hears how `prepare` gets on; this one keeps it to itself."""

    def progress(self, phase: str, bytes_done: int, bytes_total: int) -> None:
        """So many bytes of the sources are done in this phase of the work."""

    def say(self, text: str) -> None:
        """Something worth a line to the user."""


class Corpus:
    """The files of one `prepare`, which can be streamed through the stages more than once.

    `found` are those to train on and, where nothing is held out beside them, to hold out of;
    `held` are held out whole.
    """

    def __init__(
        self, paths: Sequence[Path], val: Sequence[Path], settings: Settings, reporter: Reporter
    ) -> None:
        self.reporter = reporter
        self.found: FoundFiles = find_text_files(paths)
        self.held = find_text_files(val) if val else FoundFiles()
        learned = {file.path.resolve() for file in self.found.files}
        for file in self.held.files:
            if file.path.resolve() in learned:
                raise DataError(
                    f"{file} is both to be trained on and held out.", hint="Give it once."
                )
        self.settings = settings.model_copy(update={"val_sources": len(self.held.files)})
        self._files = [*self.found.files, *self.held.files]
        self.total_bytes = sum(file.path.stat().st_size for file in self._files)
        self._modified = self._modification_times()
        self.sources: list[Source] = []
        done = 0
        for file in self._files:
            size, digest = file.path.stat().st_size, _hash(file.path)
            self.sources.append(Source(path=str(file), bytes=size, sha256=digest))
            done += size
            reporter.progress("hashing", done, self.total_bytes)

    def require_unchanged(self) -> None:
        """Raise DataError if a file was written to since its hash was taken."""
        for file, before, now in zip(
            self._files, self._modified, self._modification_times(), strict=True
        ):
            if before != now:
                raise DataError(
                    f"{file} was changed while it was read.",
                    hint="Prepare again when nothing writes to it any more.",
                )

    def require_both_sides(self) -> None:
        """Raise DataError where nothing is left to train on, or to hold out."""
        if self.held.files:
            require_both_sides(Pass(self, self.held.files).documents(), 0)
            require_both_sides(Pass(self).documents(), 0)
        else:
            require_both_sides(Pass(self).documents(), self.settings.val_fraction)

    def _modification_times(self) -> list[int]:
        return [file.path.stat().st_mtime_ns for file in self._files]


class Pass:
    """One reading of a corpus, or of those `files` of it, with its counts."""

    def __init__(self, corpus: Corpus, files: Sequence[TextFile] | None = None) -> None:
        self.corpus = corpus
        self.files = corpus.found.files if files is None else files
        self.read = ReadCounts()
        self.stages: list[StageCounts] = []

    def documents(self) -> Iterator[Document]:
        """The cleaned documents."""
        settings = self.corpus.settings
        raw = read_files(
            self.files,
            field=settings.field,
            encoding=settings.encoding,
            max_document_chars=settings.max_document_chars,
            counts=self.read,
            chats=True,
        )
        cleaned, self.stages = Pipeline(CLEANING).run(raw)
        return cleaned

    def report(self, phase: str) -> None:
        """Tell how much has been read, as the progress of `phase`."""
        self.corpus.reporter.progress(phase, self.read.bytes_read, self.corpus.total_bytes)


class Sides:
    """Tells the sides of the split apart: held out are the texts of the `held` files, or, where
    there are none, a share of the others.

    `reads_held`: whether documents come from those files still, which are read first.
    `also_held_out` counts texts to train on that are held out as well: they are left out.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._held_out: set[bytes] = set()
        self._whole = bool(corpus.held.files)
        self._fraction = corpus.settings.val_fraction
        self.reads_held = self._whole
        self.also_held_out = 0

    def held_out(self, documents: Iterator[Document]) -> Iterator[Document]:
        """Documents of the files that are held out whole, noted."""
        for document in documents:
            self._held_out.add(_digest(document.text))
            yield document

    def others(self, documents: Iterator[Document]) -> Iterator[Document]:
        """Documents of the other files, without those that are held out by others."""
        for document in documents:
            if self._held_out and _digest(document.text) in self._held_out:
                self.also_held_out += 1
            else:
                yield document

    def is_held_out(self, document: Document) -> bool:
        """On which side a document is."""
        return self.reads_held or (not self._whole and is_held_out(document.text, self._fraction))


class HeldOutFiles(ExitStack):
    """Writes held-out texts and chats, each kind to its file, and keeps a few of their names."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._files: dict[str, TextIO] = {}
        self._sources: list[str] = []
        self._last: Document | None = None

    @property
    def names(self) -> list[str]:
        """Where they came from, if they are few."""
        return self._sources if len(self._sources) <= HELD_OUT_NAMES else []

    def add(self, document: Document) -> None:
        """Write one document as a line that `prepare` reads again; each of its examples may."""
        if document is self._last:
            return
        self._last = document
        if document.chat is None:
            name = VALIDATION_NAME
            line: dict[str, Any] = {"text": document.text}
        else:
            name = VALIDATION_CHATS_NAME
            line = {"messages": document.chat.messages}
            if document.chat.tools is not None:
                line["tools"] = document.chat.tools
        if name not in self._files:
            file = (self._directory / name).open("w", encoding="utf-8")
            self._files[name] = self.enter_context(file)
        line = {**line, "source": document.source}
        self._files[name].write(json.dumps(line, ensure_ascii=False) + "\n")
        self._sources = [*self._sources, document.source][: HELD_OUT_NAMES + 1]


def _hash(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError as error:
        raise DataError(f"cannot read {path.as_posix()}: {error.strerror or error}.") from error


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8")).digest()[:16]

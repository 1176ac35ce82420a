"""From text files to a DATA directory: tokenizer, token shards, held-out text, manifest.

The text is streamed twice: once to train the tokenizer on the training documents (not when a
finished tokenizer is given), once to tokenize. Everything is written beside the target and renamed
at the end, so an interrupted run leaves nothing under the final name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import llamita
from llamita.data.encoding import DEFAULT_FORMAT, DocumentEncoder, Loss
from llamita.data.existing import refuse_other_content, same_data_at
from llamita.data.held_out import is_held_out, require_both_sides
from llamita.data.manifest import Manifest, Settings, Source, TokenizerInfo
from llamita.data.shards import SHARD_TOKENS, ShardWriter
from llamita.data.token_bins import tokenizer_of_bins
from llamita.errors import DataError
from llamita.files import replace_directory, sha256_file
from llamita.text.clean import CLEANING
from llamita.text.documents import MAX_DOCUMENT_CHARS, Document, ReadCounts, read_files
from llamita.text.pipeline import Pipeline, StageCounts
from llamita.text.sources import FoundFiles, describe_skipped, find_text_files
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.load import tokenizer_of
from llamita.tokenizer.train import parse_spec, train_tokenizer

VALIDATION_NAME = "validation.jsonl"
VALIDATION_CHATS_NAME = "validation_chats.jsonl"
HELD_OUT_NAMES = 20


class Reporter:
    """Hears how `prepare` gets on; this one keeps it to itself."""

    def progress(self, phase: str, bytes_done: int, bytes_total: int) -> None:
        """So many bytes of the sources are done in this phase of the work."""

    def say(self, text: str) -> None:
        """Something worth a line to the user."""


def prepare(
    paths: Sequence[Path],
    out: Path,
    *,
    tokenizer: str = "bpe:8192",
    val_fraction: float = 0.1,
    field: str = "text",
    encoding: str = "utf-8",
    max_document_chars: int = MAX_DOCUMENT_CHARS,
    seed: int = 0,
    loss: Loss = "all",
    force: bool = False,
    shard_tokens: int = SHARD_TOKENS,
    reporter: Reporter | None = None,
) -> Manifest:
    """Make the DATA directory `out` from the text at `paths`.

    When `out` was made from the same sources with the same settings, it is left as it is.

    Args:
        paths: files and folders, see `read_documents`.
        out: written whole or not at all.
        tokenizer: what to train ("bpe:8192", "spm:8192", "unigram:8192", "char"), or the path of
            a finished tokenizer, or of a model or DATA in any format, whose own is taken.
        val_fraction: the share of documents to hold out for validation, 0 for none.
        field, encoding, max_document_chars: see `read_documents`.
        seed: of the sample that the tokenizer is trained on, when the text is too large for it.
        loss: what is learned of chats: "all" tokens, or what the "assistant" says.
        force: replace another DATA directory at `out`.
        shard_tokens: the most tokens in one shard file.
        reporter: hears about the progress.

    Raises:
        DataError: the text cannot be read, one side of the split would be empty, or `out` holds
            something else.
        TokenizerError: the tokenizer cannot be trained or read.
    """
    if not 0 <= val_fraction < 1:
        raise DataError(f"--val-fraction is {val_fraction:g}; it must be at least 0 and below 1.")
    refuse_other_content(out)
    finished = None if parse_spec(tokenizer) else _load_tokenizer(tokenizer)
    settings = Settings(
        tokenizer=tokenizer if finished is None else finished.fingerprint,
        val_fraction=val_fraction,
        field=field,
        encoding=encoding,
        max_document_chars=max_document_chars,
        seed=seed,
        loss=loss,
    )
    reporter = reporter or Reporter()
    corpus = _Corpus(paths, settings, reporter)
    if corpus.found.skipped:
        reporter.say(f"passed over, not text: {describe_skipped(corpus.found.skipped)}")
    existing = same_data_at(out, corpus.sources, settings, force)
    if existing is not None:
        reporter.say(
            f"already prepared: {out.as_posix()} was made from this text with these settings."
        )
        return existing
    with ExitStack() as stack:
        directory = _begin(out, stack)  # before the long work, which would be lost
        require_both_sides(_Pass(corpus).documents(), val_fraction)
        used = finished or _train_tokenizer(corpus, tokenizer)
        return _write_data(directory, corpus, used, shard_tokens)


class _Corpus:
    """The files of one `prepare`, which can be streamed through the stages more than once."""

    def __init__(self, paths: Sequence[Path], settings: Settings, reporter: Reporter) -> None:
        self.settings = settings
        self.reporter = reporter
        self.found: FoundFiles = find_text_files(paths)
        self.total_bytes = sum(file.path.stat().st_size for file in self.found.files)
        self._modified = self._modification_times()
        self.sources: list[Source] = []
        done = 0
        for file in self.found.files:
            size, digest = file.path.stat().st_size, _hash(file.path)
            self.sources.append(Source(path=str(file), bytes=size, sha256=digest))
            done += size
            reporter.progress("hashing", done, self.total_bytes)

    def require_unchanged(self) -> None:
        """Raise DataError if a file was written to since its hash was taken."""
        for file, before, now in zip(
            self.found.files, self._modified, self._modification_times(), strict=True
        ):
            if before != now:
                raise DataError(
                    f"{file} was changed while it was read.",
                    hint="Prepare again when nothing writes to it any more.",
                )

    def _modification_times(self) -> list[int]:
        return [file.path.stat().st_mtime_ns for file in self.found.files]


class _Pass:
    """One reading of a corpus, with its counts."""

    def __init__(self, corpus: _Corpus) -> None:
        self.corpus = corpus
        self.read = ReadCounts()
        self.stages: list[StageCounts] = []

    def documents(self) -> Iterator[Document]:
        """The cleaned documents."""
        settings = self.corpus.settings
        raw = read_files(
            self.corpus.found.files,
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


def _hash(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError as error:
        raise DataError(f"cannot read {path.as_posix()}: {error.strerror or error}.") from error


def _begin(out: Path, stack: ExitStack) -> Path:
    """The directory to write to, which becomes `out` when `stack` closes well."""
    try:
        return stack.enter_context(replace_directory(out))
    except OSError as error:
        raise DataError(
            f"cannot write {out.as_posix()}: {error.strerror or error}.",
            hint="Choose with -o a place where you may write.",
        ) from error


def _load_tokenizer(path: str) -> Tokenizer:
    if not Path(path).exists():
        raise DataError(
            f"--tokenizer is {path!r}: no such file, and no kind to train.",
            hint="Kinds: bpe:8192, spm:8192, unigram:8192 (any size), char; or the path of a "
            "tokenizer or of a model.",
        )
    of_bins = tokenizer_of_bins(Path(path))
    return tokenizer_of(path) if of_bins is None else of_bins


def _train_tokenizer(corpus: _Corpus, spec: str) -> Tokenizer:
    this_pass = _Pass(corpus)

    def training_texts() -> Iterator[str]:
        for document in this_pass.documents():
            this_pass.report("reading")
            if not is_held_out(document.text, corpus.settings.val_fraction):
                yield document.text

    seed, log = corpus.settings.seed, corpus.reporter.say
    return train_tokenizer(training_texts(), spec, seed=seed, log=log)


def _write_data(
    directory: Path, corpus: _Corpus, tokenizer: Tokenizer, shard_tokens: int
) -> Manifest:
    this_pass = _Pass(corpus)
    encoder = DocumentEncoder(tokenizer, corpus.settings.loss)
    masked = corpus.settings.loss != "all"
    separated = (tokenizer.vocab_size, tokenizer.separator_id)
    with (
        ShardWriter(directory, "train", *separated, shard_tokens, masked) as train,
        ShardWriter(directory, "val", *separated, shard_tokens, masked) as val,
        _HeldOut(directory) as held_out,
    ):
        for document, encoded in encoder.encode(this_pass.documents()):
            held = is_held_out(document.text, corpus.settings.val_fraction)
            writer = val if held else train
            writer.write_document(
                encoded.token_ids, encoded.text_bytes, encoded.learned, encoded.learned_bytes
            )
            this_pass.report("tokenizing")
            if held:
                held_out.add(document)
    corpus.require_unchanged()
    if encoder.tokenizer is not tokenizer:
        corpus.reporter.say(f"chats are written as {DEFAULT_FORMAT}: the tokenizer had no template")
    encoder.tokenizer.save(directory)
    manifest = Manifest(
        llamita_version=llamita.__version__,
        settings=corpus.settings,
        sources=corpus.sources,
        skipped_files=dict(corpus.found.skipped),
        empty_files=this_pass.read.empty_files,
        cut_documents=this_pass.read.cut_documents,
        replaced_surrogates=this_pass.read.replaced_surrogates,
        stages=this_pass.stages,
        train=train.counts,
        val=val.counts,
        chats=encoder.chats,
        held_out=held_out.names,
        tokenizer=TokenizerInfo(
            kind=tokenizer.kind,
            vocab_size=tokenizer.vocab_size,
            fingerprint=tokenizer.fingerprint,
        ),
        dtype=train.dtype,
        separator_id=tokenizer.separator_id,
        shards=[*train.shards, *val.shards],
    )
    manifest.save(directory)
    return manifest


class _HeldOut(ExitStack):
    """Writes held-out texts and chats, each kind to its file, and keeps a few of their names."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._files: dict[str, TextIO] = {}
        self._sources: list[str] = []

    @property
    def names(self) -> list[str]:
        """Where they came from, if they are few."""
        return self._sources if len(self._sources) <= HELD_OUT_NAMES else []

    def add(self, document: Document) -> None:
        """Write one document as a line that `prepare` reads again."""
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

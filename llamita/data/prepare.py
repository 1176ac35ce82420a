"""From text files to a DATA directory: tokenizer, token shards, held-out text, manifest.

The text is streamed twice: once to train the tokenizer on the training documents (not when a
finished tokenizer is given), once to tokenize. Everything is written beside the target and renamed
at the end, so an interrupted run leaves nothing under the final name.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import llamita
from llamita.data.corpus import (
    VALIDATION_CHATS_NAME,
    VALIDATION_NAME,
    Corpus,
    HeldOutFiles,
    Pass,
    Reporter,
    Sides,
)
from llamita.data.encoding import DocumentEncoder, Encoded, Fit, Loss, format_that_matters
from llamita.data.existing import refuse_other_content, same_data_at
from llamita.data.manifest import Manifest, Settings, TokenizerInfo
from llamita.data.shards import SHARD_TOKENS, ShardWriter
from llamita.data.token_bins import tokenizer_of_bins
from llamita.data.tokenizer_texts import train_on_corpus
from llamita.errors import DataError
from llamita.files import replace_directory, sha256_file, sha256_text
from llamita.text.documents import MAX_DOCUMENT_CHARS
from llamita.text.sources import describe_skipped, find_text_files
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat_templates import DEFAULT_FORMAT
from llamita.tokenizer.load import tokenizer_of
from llamita.tokenizer.train import parse_spec

__all__ = ["VALIDATION_CHATS_NAME", "VALIDATION_NAME", "Reporter", "prepare"]


def prepare(
    paths: Sequence[Path],
    out: Path,
    *,
    tokenizer: str | Tokenizer = "bpe:8192",
    val: Sequence[Path] = (),
    val_fraction: float = 0.1,
    field: str = "text",
    encoding: str = "utf-8",
    max_document_chars: int = MAX_DOCUMENT_CHARS,
    seed: int = 0,
    loss: Loss = "all",
    fit: Fit | None = None,
    chat_format: str | None = None,
    tokenizer_also: Sequence[Path] = (),
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
            a finished tokenizer, or of a model or DATA in any format, whose own is taken; or one
            that is loaded.
        val: files and folders to hold out whole; what is in both is not trained on.
        val_fraction: the share of documents to hold out for validation, 0 for none. With `val` it
            means nothing.
        field, encoding, max_document_chars: see `read_documents`.
        seed: of the sample that the tokenizer is trained on, when the text is too large for it.
        loss: what is learned of chats: "all" tokens, or what the "assistant" says.
        fit: with the latter, what becomes of chats that are longer than a row.
        chat_format: what chats are written in where the tokenizer brings no chat template; None:
            `DEFAULT_FORMAT`. A template that it brings must be of this format. A tokenizer that is
            trained learns from chats as they are written, and gets the control tokens.
        tokenizer_also: files and folders that a tokenizer which is trained learns from as well:
            texts and chats in UTF-8, JSONL with the field "text", whatever `field` and `encoding`.
        force: replace another DATA directory at `out`.
        shard_tokens: the most tokens in one shard file.
        reporter: hears about the progress.

    Raises:
        DataError: the text cannot be read, one side of the split would be empty, `out` holds
            something else, or `tokenizer_also` is given for a finished tokenizer.
        TokenizerError: the tokenizer cannot be trained or read, or is not for `chat_format`.
    """
    if not 0 <= val_fraction < 1:
        raise DataError(f"--val-fraction is {val_fraction:g}; it must be at least 0 and below 1.")
    refuse_other_content(out)
    finished, template = _finished(tokenizer), None
    chat_format = format_that_matters(chat_format, finished)
    if tokenizer_also and finished is not None:
        raise DataError(
            "tokenizer_also is given, and the tokenizer is finished: it learns from nothing.",
            hint='Leave tokenizer_also out, or have a tokenizer trained, such as "bpe:8192".',
        )
    also = find_text_files(tokenizer_also).files if tokenizer_also else []
    if isinstance(tokenizer, Tokenizer):  # with a template that no file may hold
        template = tokenizer.chat_template
    settings = Settings(
        tokenizer=str(tokenizer) if finished is None else finished.fingerprint,
        val_fraction=0 if val else val_fraction,
        field=field,
        encoding=encoding,
        max_document_chars=max_document_chars,
        seed=seed,
        loss=loss,
        longest=None if fit is None else fit.longest,
        long=None if fit is None else fit.long,
        chat_template=None if template is None else sha256_text(template),
        chat_format=chat_format,
        tokenizer_also=[sha256_file(file.path) for file in also] or None,
    )
    reporter = reporter or Reporter()
    corpus = Corpus(paths, val, settings, reporter)
    skipped = corpus.found.skipped + corpus.held.skipped
    if skipped:
        reporter.say(f"passed over, not text: {describe_skipped(skipped)}")
    existing = same_data_at(out, corpus.sources, corpus.settings, force)
    if existing is not None:
        reporter.say(
            f"already prepared: {out.as_posix()} was made from this text with these settings."
        )
        return existing
    with ExitStack() as stack:
        directory = _begin(out, stack)  # before the long work, which would be lost
        corpus.require_both_sides()
        used = finished or train_on_corpus(
            corpus, str(tokenizer), also, chat_format or DEFAULT_FORMAT
        )
        return _write_data(directory, corpus, used, shard_tokens, fit)


def _begin(out: Path, stack: ExitStack) -> Path:
    """The directory to write to, which becomes `out` when `stack` closes well."""
    try:
        return stack.enter_context(replace_directory(out))
    except OSError as error:
        raise DataError(
            f"cannot write {out.as_posix()}: {error.strerror or error}.",
            hint="Choose with -o a place where you may write.",
        ) from error


def _finished(path: str | Tokenizer) -> Tokenizer | None:
    """The tokenizer at a path; None where one is to be trained."""
    if isinstance(path, Tokenizer):
        return path
    if parse_spec(path):
        return None
    if not Path(path).exists():
        raise DataError(
            f"--tokenizer is {path!r}: no such file, and no kind to train.",
            hint="Kinds: bpe:8192, spm:8192, unigram:8192 (any size), char; or the path of a "
            "tokenizer or of a model.",
        )
    of_bins = tokenizer_of_bins(Path(path))
    return tokenizer_of(path) if of_bins is None else of_bins


def _write_data(
    directory: Path, corpus: Corpus, tokenizer: Tokenizer, shard_tokens: int, fit: Fit | None
) -> Manifest:
    this_pass, of_held = Pass(corpus), Pass(corpus, corpus.held.files)
    sides, too_long = Sides(corpus), _TooLong()
    encoder = DocumentEncoder(
        tokenizer,
        corpus.settings.loss,
        fit,
        lambda document, needed: too_long.add(sides.is_held_out(document), needed),
        chat_format=corpus.settings.chat_format,
    )
    masked = corpus.settings.loss != "all"
    separated = (tokenizer.vocab_size, tokenizer.separator_id)
    with (
        ShardWriter(directory, "train", *separated, shard_tokens, masked) as train,
        ShardWriter(directory, "val", *separated, shard_tokens, masked) as val,
        HeldOutFiles(directory) as held_out,
    ):
        if corpus.held.files:
            for document, encoded in encoder.encode(sides.held_out(of_held.documents())):
                _write(val, encoded)
                held_out.add(document)
        sides.reads_held = False
        for document, encoded in encoder.encode(sides.others(this_pass.documents())):
            held = sides.is_held_out(document)
            _write(val if held else train, encoded)
            this_pass.report("tokenizing")
            if held:
                held_out.add(document)
    corpus.require_unchanged()
    _require_rows(corpus, fit, too_long, train, val)
    if encoder.tokenizer is not tokenizer:
        written = corpus.settings.chat_format or DEFAULT_FORMAT
        corpus.reporter.say(f"chats are written as {written}: the tokenizer had no template")
    encoder.tokenizer.save(directory)
    passes = (this_pass, of_held)
    manifest = Manifest(
        llamita_version=llamita.__version__,
        settings=corpus.settings,
        sources=corpus.sources,
        skipped_files=dict(corpus.found.skipped + corpus.held.skipped),
        empty_files=sum(one.read.empty_files for one in passes),
        cut_documents=sum(one.read.cut_documents for one in passes),
        replaced_surrogates=sum(one.read.replaced_surrogates for one in passes),
        stages=this_pass.stages,
        train=train.counts,
        val=val.counts,
        chats=encoder.chats,
        dropped_chats=encoder.dropped,
        cut_chats=encoder.cut,
        split_chats=encoder.split,
        unreasoned_chats=encoder.unreasoned,
        undeclared_chats=encoder.undeclared,
        also_held_out=sides.also_held_out,
        held_out=held_out.names,
        tokenizer=TokenizerInfo(
            kind=tokenizer.kind,
            vocab_size=tokenizer.vocab_size,
            fingerprint=tokenizer.fingerprint,
        ),
        dtype=train.dtype,
        separator_id=tokenizer.separator_id,
        shards=[*train.shards, *val.shards],
        documents=[one.documents for one in (train, val) if one.documents is not None],
    )
    manifest.save(directory)
    return manifest


def _write(writer: ShardWriter, encoded: Encoded) -> None:
    writer.write_document(
        encoded.token_ids,
        encoded.text_bytes,
        encoded.learned,
        encoded.learned_bytes,
        is_chat=encoded.is_chat,
        stands_alone=encoded.stands_alone,
    )


class TooLongError(DataError):
    """No chat of one side of the split fits into a row."""


class _TooLong:
    """Chats that do not fit: how many of each side, and the shortest row that one would fit."""

    def __init__(self) -> None:
        self.counts = {True: 0, False: 0}
        self.shortest = {True: 0, False: 0}

    def add(self, is_held_out: bool, needed: int) -> None:
        self.counts[is_held_out] += 1
        self.shortest[is_held_out] = min(needed, self.shortest[is_held_out] or needed)


def _require_rows(
    corpus: Corpus, fit: Fit | None, too_long: _TooLong, train: ShardWriter, val: ShardWriter
) -> None:
    """Raise DataError where no chat that fits is left on a side."""
    wants_val = bool(corpus.held.files) or corpus.settings.val_fraction > 0
    if train.counts.documents and (val.counts.documents or not wants_val):
        return
    lacks_val = train.counts.documents > 0
    count, shortest = too_long.counts[lacks_val], too_long.shortest[lacks_val]
    if fit is None or not count:
        raise DataError(
            "everything to train on is held out as well.", hint="Give other text to hold out."
        )
    side = "held out" if lacks_val else "to train on"
    hint = f"Take a longer one: --context {shortest}"
    if fit.long == "drop":
        found = f"the shortest of the {count:,} has {shortest:,}"
        hint += ", or cut them behind the last whole turn of the assistant that fits: --long cut"
    else:
        found = f"the shortest first answer of the {count:,} ends at token {shortest:,}"
    raise TooLongError(
        f"every chat {side} is longer than the context of {fit.longest:,} tokens; {found}.",
        hint=hint,
    )

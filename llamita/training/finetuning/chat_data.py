"""The chats of a fine-tuning run as DATA in its own folder: what fits, and what is held out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llamita.config import ModelConfig
from llamita.data.encoding import DocumentEncoder, Fit, Long
from llamita.data.folder import DataFolder
from llamita.data.held_out import OneSidedError, fraction_near
from llamita.data.manifest import MANIFEST_NAME, Manifest, Settings
from llamita.data.prepare import Reporter, TooLongError, prepare
from llamita.errors import DataError
from llamita.text.chats import MESSAGES
from llamita.text.clean import CLEANING
from llamita.text.documents import Document, read_files
from llamita.text.pipeline import Pipeline
from llamita.text.sources import find_text_files
from llamita.tokenizer import Tokenizer

DATA_NAME = "data"
USUAL_FRACTION = 0.1
LONGEST_UNASKED = 2048
"""Tokens: a longer context is taken where it is asked for."""
_SHORTEST = 256  # several chats share a row of it, so that little of it is padding
_ROUND = 32


@dataclass(frozen=True)
class Chats:
    """Which chats to learn from.

    Attributes:
        paths: files and folders of JSONL.
        val: those to hold out whole, in place of `val_fraction` of the others.
        val_fraction: None: `USUAL_FRACTION`, or what is near it and leaves something on both sides.
        context: tokens of a row; None: as many as the longest chat needs, at most the model's own
            and `LONGEST_UNASKED`.
        long: what becomes of longer chats; None: they are dropped.
    """

    paths: Sequence[Path]
    val: Sequence[Path] = ()
    val_fraction: float | None = None
    context: int | None = None
    long: Long | None = None

    def as_prepared(self, out: Path) -> Chats:
        """With the settings that the run in `out` prepared its chats with."""
        if not (out / DATA_NAME / MANIFEST_NAME).is_file():
            return self
        manifest = Manifest.load(out / DATA_NAME)
        settings = manifest.settings
        if settings is None or settings.longest is None or settings.long is None:
            return self
        held = manifest.sources[len(manifest.sources) - settings.val_sources :]
        val = self.val or [Path(source.path) for source in held]
        fraction = None if val else settings.val_fraction
        return replace(
            self, val=val, val_fraction=fraction, context=settings.longest, long=settings.long
        )

    def differences(self, out: Path) -> list[str]:
        """What is asked for otherwise than the run in `out` prepared its chats with."""
        settings = settings_of(out)
        if settings is None:
            return []
        asked = {
            "--context": (settings.longest, self.context),
            "--long": (settings.long, self.long),
            "--val-fraction": (settings.val_fraction, self.val_fraction),
        }
        return [
            f"{name} was {old} and is now {new}"
            for name, (old, new) in asked.items()
            if new is not None and old is not None and new != old
        ]


def settings_of(out: Path) -> Settings | None:
    """What the chats of the run in `out` were prepared with, if they lie there."""
    if not (out / DATA_NAME / MANIFEST_NAME).is_file():
        return None
    return Manifest.load(out / DATA_NAME).settings


def prepare_chats(
    chats: Chats, out: Path, tokenizer: Tokenizer, config: ModelConfig, reporter: Reporter
) -> DataFolder:
    """Write the chats as tokens into the folder `data` of `out`, unless they lie there already.

    Raises:
        DataError: a chat is wrong, none fits, or other chats lie there.
    """
    data, was_there = out / DATA_NAME, out.exists()
    limit = chats.context or min(config.max_position_embeddings, LONGEST_UNASKED)
    fit = Fit(limit, chats.long or "drop")

    def prepared(fraction: float) -> Manifest:
        return prepare(
            chats.paths,
            data,
            tokenizer=tokenizer,
            val=chats.val,
            val_fraction=fraction,
            field=MESSAGES,
            loss="assistant",
            fit=fit,
            reporter=reporter,
        )

    try:
        try:
            manifest = prepared(_fraction(chats, data, reporter))
        except TooLongError:
            if chats.val or chats.val_fraction is not None:
                raise
            encoder = DocumentEncoder(tokenizer, "assistant", fit)
            fitting = (document for document, _ in encoder.encode(_documents(chats.paths)))
            fraction = _near(fitting, reporter)
            if not encoder.chats:
                raise
            manifest = prepared(fraction)
    except BaseException as error:
        if not was_there:
            with contextlib.suppress(OSError):
                out.rmdir()  # which was made for what failed
        if isinstance(error, OneSidedError):
            raise OneSidedError(
                error.message,
                hint="Give more conversations, or another --val-fraction (0 holds nothing out).",
            ) from error
        if not isinstance(error, DataError) or "--force" not in (error.hint or ""):
            raise
        raise DataError(
            error.message, hint="Give the chats and settings it was begun with, or another -o."
        ) from error
    for line in _counted(manifest, limit):
        reporter.say(line)
    return DataFolder.open(data)


def context_of(chats: Chats, folder: DataFolder, config: ModelConfig) -> int:
    """Tokens of a row: as asked for, or what the longest chat needs."""
    if chats.context is not None:
        return chats.context
    longest = 0
    for split in ("train", "val"):
        if folder.manifest.counts(split).documents:
            _, lengths = folder.dataset(split).documents(folder.tokenizer.separator_id)
            longest = max(longest, int(lengths.max()))
    wanted = max(_SHORTEST, -(-longest // _ROUND) * _ROUND)
    return min(wanted, config.max_position_embeddings)


def _fraction(chats: Chats, data: Path, reporter: Reporter) -> float:
    if chats.val:
        return 0.0
    if chats.val_fraction is not None:
        return chats.val_fraction
    if (data / MANIFEST_NAME).is_file():
        settings = Manifest.load(data).settings
        if settings is not None:
            return settings.val_fraction  # which was chosen for these chats, if they are the same
    return _near(_documents(chats.paths), reporter)


def _near(documents: Iterable[Document], reporter: Reporter) -> float:
    """The usual fraction, or what leaves one of the documents on both sides."""
    fraction = fraction_near((document.text for document in documents), USUAL_FRACTION)
    if fraction == 0:
        reporter.say("there is one conversation: nothing is held out, so no step is known as best")
    elif fraction != USUAL_FRACTION:
        reporter.say(f"few conversations: {fraction:.3g} of them are held out")
    return fraction


def _documents(paths: Sequence[Path]) -> Iterator[Document]:
    """The chats as `prepare` splits them: cleaned."""
    raw = read_files(find_text_files(paths).files, field=MESSAGES, chats=True)
    return Pipeline(CLEANING).run(raw)[0]


def _counted(manifest: Manifest, limit: int) -> Iterator[str]:
    learned = manifest.train.learned_tokens or 0
    yield (
        f"{manifest.train.documents:,} conversations to learn from ({learned:,} of "
        f"{manifest.train.tokens:,} tokens are the assistant's), {manifest.val.documents:,} held "
        "out"
    )
    if manifest.dropped_chats:
        yield (
            f"{manifest.dropped_chats:,} conversations left out, longer than {limit:,} tokens "
            "(--context takes longer ones, --long cut keeps their beginnings)"
        )
    if manifest.cut_chats:
        yield (
            f"{manifest.cut_chats:,} conversations longer than {limit:,} tokens cut behind the "
            "last whole turn of the assistant that fits"
        )
    if manifest.split_chats:
        yield (
            f"{manifest.split_chats:,} conversations whose earlier turns the chat template writes "
            "otherwise than they are generated: each answer is an example of its own, counted as a "
            "conversation"
        )
    if manifest.unreasoned_chats:
        yield (
            f"{manifest.unreasoned_chats:,} conversations lose their reasoning: the chat template "
            "has no place for it"
        )
    if manifest.undeclared_chats:
        yield (
            f"{manifest.undeclared_chats:,} conversations call tools that neither their tools nor "
            "their system text name"
        )
    if manifest.also_held_out:
        yield f"{manifest.also_held_out:,} conversations are held out too: not trained on"

"""The text of a plan, ready to be measured on: DATA as it lies, or text prepared for the time
being."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamita.data.existing import is_prepared
from llamita.data.folder import DataFolder
from llamita.data.held_out import OneSidedError
from llamita.data.suggested import prepare_as_suggested, sample_text, suggested_preparation
from llamita.data.token_bins import find_token_bins
from llamita.data.training_data import TrainingData
from llamita.errors import DataError
from llamita.text.documents import MAX_DOCUMENT_CHARS
from llamita.text.sources import find_text_files
from llamita.training.settings.recipe import Source
from llamita.training.sources.inputs import open_sources

SAMPLE_BYTES = 8_000_000
"""Of a larger text, so much is prepared to measure on."""
_UNPACKED = 4  # times its size on the disk compressed text may be; what it is, a sample tells


@dataclass(frozen=True)
class Ready:
    """What a plan is measured on.

    Attributes:
        sources: the DATA.
        text_share: what part of the text they hold.
        preparation: options of `prepare` that make DATA of the whole text; none where it is DATA.
        recipe_data: what the recipe says of its data; nothing where that is yet to be made.
    """

    sources: tuple[Source, ...]
    text_share: float
    preparation: dict[str, Any]
    recipe_data: dict[str, Any]


def ready_to_measure(
    paths: Sequence[Path], tokenizer: str | None, work: Path, say: Callable[[str], None]
) -> Ready:
    """Take DATA as it is; prepare text, or a sample of much of it, in `work`.

    Args:
        paths: text, as for `prepare`, or DATA.
        tokenizer: as for `prepare`; None takes one that suits the text.

    Raises:
        DataError: a path is missing or no text, both kinds are given, or nothing can be prepared.
    """
    prepared = [path for path in paths if is_prepared(path) or find_token_bins(path)]
    if not prepared:
        return _from_text(paths, tokenizer, work, say)
    if tokenizer is not None:
        raise DataError(
            f"--tokenizer is {tokenizer}, but {prepared[0].as_posix()} is prepared data, which has "
            "its tokenizer.",
            hint="Leave --tokenizer out, or plan for the TEXT itself.",
        )
    if len(prepared) < len(paths):
        raise DataError(
            f"{prepared[0].as_posix()} is prepared data, and other text is given beside it.",
            hint="Plan for DATA alone, or for TEXT alone.",
        )
    folders = [DataFolder.open(path.absolute()) for path in paths]
    sources = tuple(
        Source(path=str(folder.path), fingerprint=folder.manifest.fingerprint) for folder in folders
    )
    named = [source.model_dump(exclude_none=True) for source in sources]
    return Ready(sources, 1.0, {}, {"data": named})


def checked_data(
    sources: Sequence[Source], say: Callable[[str], None]
) -> tuple[TrainingData, float]:
    """The data to plan for, checked once for all pilots, and the seconds that this takes a run.

    Raises:
        DataError: it is damaged, or holds nothing out.
    """
    data = open_sources(sources, say, check=False)
    if not any(folder.manifest.val.tokens for folder in data.folders):
        raise DataError(
            f"{data.described} holds no text out: nothing could be foretold of its validation.",
            hint="Prepare the text again with a --val-fraction between 0 and 1.",
        )
    started = time.perf_counter()
    for folder in data.folders:
        folder.check_content()
    return data, time.perf_counter() - started


def _from_text(
    paths: Sequence[Path], tokenizer: str | None, work: Path, say: Callable[[str], None]
) -> Ready:
    files = find_text_files(paths).files
    suggestion, share = suggested_preparation(files, tokenizer), 1.0
    sizes = (file.path.stat().st_size * (_UNPACKED if file.compression else 1) for file in files)
    if sum(sizes) > SAMPLE_BYTES:
        sample = work / "sample.jsonl"
        share = sample_text(paths, SAMPLE_BYTES, suggestion.max_document_chars, sample)
        if share < 1:
            paths = [sample]
            say(f"a sample of {SAMPLE_BYTES / 1e6:.0f} MB, {share:.1%} of the text")
    try:
        manifest = prepare_as_suggested(paths, work / "data", suggestion)
    except OneSidedError as error:
        raise OneSidedError(
            error.message,
            hint="Give more text to plan for. Or prepare it yourself, cut into more documents, and "
            "plan for that DATA: llamita prepare TEXT -o DATA --max-document-chars 1000",
        ) from error
    settings = manifest.settings
    if settings is None:
        raise ValueError("prepare did not write down its settings")
    preparation: dict[str, Any] = {"tokenizer": tokenizer or settings.tokenizer}
    if suggestion.max_document_chars != MAX_DOCUMENT_CHARS:
        preparation["max_document_chars"] = suggestion.max_document_chars
    source = Source(path=str(work / "data"), fingerprint=manifest.fingerprint)
    say(f"{manifest.train.tokens:,} tokens to learn from, {manifest.val.tokens:,} held out")
    return Ready((source,), share, preparation, {})

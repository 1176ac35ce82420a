"""`llamita prepare TEXT… -o DATA`: text files into a tokenizer and token shards."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from llamita.cli.options import CHAT_FORMATS, JsonOption
from llamita.cli.progress import ProgressBar, progress_bar, say
from llamita.data.manifest import Manifest
from llamita.data.prepare import Reporter, prepare
from llamita.text.documents import MAX_DOCUMENT_CHARS


def command(
    text: Annotated[
        list[Path],
        typer.Argument(
            metavar="TEXT",
            help="Text, or chats (.jsonl in Hermes', OpenAI's, ShareGPT's or Alpaca's form): .txt, "
            ".md, .jsonl, each also as .gz or .zst, and folders.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DATA", help="The folder to make.")],
    tokenizer: Annotated[
        str,
        typer.Option(
            help="Train bpe:SIZE, spm:SIZE, unigram:SIZE or char; or use the one at PATH, which "
            "may be a model of any format (to go on from it: train --init MODEL) or other DATA."
        ),
    ] = "bpe:8192",
    val_fraction: Annotated[
        float,
        typer.Option(help="Share of documents held out for validation, by a hash of their text."),
    ] = 0.1,
    field: Annotated[str, typer.Option(help="The JSONL field that holds the text.")] = "text",
    encoding: Annotated[str, typer.Option(help="The encoding of the text files.")] = "utf-8",
    max_document_chars: Annotated[
        int, typer.Option(help="Cut longer documents at blank lines.")
    ] = MAX_DOCUMENT_CHARS,
    seed: Annotated[
        int, typer.Option(help="Of the sample of a large text that the tokenizer is trained on.")
    ] = 0,
    loss: Annotated[
        Literal["all", "assistant"],
        typer.Option(help="What is learned of chats: every token, or what the assistant says."),
    ] = "all",
    chat_format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How chats are written where the tokenizer brings no chat template: "
            f"{CHAT_FORMATS}.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace other data at DATA.")] = False,
    json: JsonOption = False,
) -> None:
    """Clean text, train a tokenizer on it and write token shards for `llamita train`."""
    with PhaseBars() as bars:
        manifest = prepare(
            text,
            out,
            tokenizer=tokenizer,
            val_fraction=val_fraction,
            field=field,
            encoding=encoding,
            max_document_chars=max_document_chars,
            seed=seed,
            loss=loss,
            chat_format=chat_format,
            force=force,
            reporter=bars,
        )
    print(manifest.model_dump_json(indent=2) if json else _summary(manifest, out))


class PhaseBars(ExitStack, Reporter):
    """One progress bar for each phase of the work, the last one gone when the next begins."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = ""
        self.bar: ProgressBar | None = None

    def progress(self, phase: str, bytes_done: int, bytes_total: int) -> None:
        if self.bar is None or phase != self.phase:
            self.close()
            self.phase = phase
            self.bar = self.enter_context(progress_bar(phase, bytes_total / 1e6, "MB"))
        self.bar.update(bytes_done / 1e6)

    def say(self, text: str) -> None:
        say(text)


def _summary(manifest: Manifest, out: Path) -> str:
    lines = [out.as_posix()]
    for name, counts in (("training", manifest.train), ("held out", manifest.val)):
        if counts.documents:
            plural = "" if counts.documents == 1 else "s"
            lines.append(
                f"  {name:<10} {counts.documents:,} document{plural}, {_size(counts.bytes)}, "
                f"{counts.tokens:,} tokens"
            )
    lines.append(
        f"  tokenizer  {manifest.tokenizer.kind}, {manifest.tokenizer.vocab_size:,} tokens, "
        f"{manifest.bytes_per_token:.2f} bytes per token"
    )
    if manifest.held_out:
        lines.append(
            "  held-out documents: "
            + ", ".join(name.rpartition("/")[2] for name in manifest.held_out)
        )
    if manifest.chats:
        learned = manifest.train.learned_tokens
        lines.append(
            f"  chats      {manifest.chats:,}"
            + (f", {learned:,} training tokens to be learned" if learned is not None else "")
        )
    lines.extend(f"  {note}" for note in _notes(manifest))
    lines.append(f"next: llamita train {out.as_posix()} -o RUN")
    return "\n".join(lines)


def _size(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size} bytes"


def _notes(manifest: Manifest) -> list[str]:
    """What a person should know about their text."""
    dropped = sum(stage.documents_in - stage.documents_out for stage in manifest.stages)
    counted = (
        (manifest.empty_files, "files without any text"),
        (dropped, "documents left out in cleaning"),
        (manifest.cut_documents, "documents cut, longer than --max-document-chars"),
        (manifest.replaced_surrogates, "lone surrogates (no characters) replaced by U+FFFD"),
    )
    return [f"{what}: {count:,}" for count, what in counted if count]

"""`llamita tokenizer train|inspect|compare`: tokenizers by themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llamita.cli.options import CHAT_FORMATS, JsonOption
from llamita.cli.progress import ProgressBar, progress_bar
from llamita.errors import TokenizerError

if TYPE_CHECKING:
    from llamita.text.documents import Document
    from llamita.tokenizer import Tokenizer

_BATCH_DOCUMENTS = 64

app = typer.Typer(
    help="Train, inspect and compare tokenizers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Field = Annotated[str, typer.Option(help="The JSONL field that holds the text.")]
Encoding = Annotated[str, typer.Option(help="The encoding of the text files.")]


@app.command()
def train(
    texts: Annotated[
        list[Path],
        typer.Argument(metavar="TEXT...", help="Files or folders of text and of chats (.jsonl)."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where to write it.")],
    tokenizer: Annotated[
        str, typer.Option(help="bpe:SIZE, spm:SIZE, unigram:SIZE, char or char:SIZE.")
    ] = "bpe:8192",
    field: Field = "text",
    encoding: Encoding = "utf-8",
    chat_format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How chats are written, which it learns; control tokens of the format that it "
            f"lacks come on top of SIZE: {CHAT_FORMATS}.",
        ),
    ] = None,
    sample_mb: Annotated[
        int | None, typer.Option(min=1, help="Learn from at most this many megabytes of text.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses the sample where the text is larger.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Train a tokenizer on TEXT and write it to DIR."""
    from llamita.data.tokenizer_texts import train_on_documents
    from llamita.text.documents import read_files
    from llamita.text.sources import find_text_files
    from llamita.tokenizer.chat_templates import DEFAULT_FORMAT
    from llamita.tokenizer.files import has_tokenizer

    if has_tokenizer(out):
        raise TokenizerError(
            f"{out} already holds a tokenizer.",
            hint="Choose another directory: data and models made with it depend on it.",
        )
    if out.exists() and not out.is_dir():
        raise TokenizerError(f"{out} is a file; a directory is needed.")
    with progress_bar("reading", None, "bytes") as bar:
        files = find_text_files(texts).files
        documents = read_files(files, field=field, encoding=encoding, chats=True)
        made = train_on_documents(
            _counted(documents, bar),
            tokenizer,
            chat_format or DEFAULT_FORMAT,
            sample_bytes=None if sample_mb is None else sample_mb * 1_000_000,
            seed=seed,
            log=bar.say,
        )
    made.save(out)
    _print_summary(_describe(made, out), as_json)


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="A tokenizer.json or .model, or any model.")],
    text: Annotated[str | None, typer.Argument(help="Text to show in pieces.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a tokenizer is, and how it cuts TEXT."""
    from llamita.tokenizer.load import tokenizer_of

    tokenizer = tokenizer_of(path)
    summary = _describe(tokenizer, path)
    if text is not None:
        summary["tokens"] = [
            {"id": token_id, "text": _printable(tokenizer.token_bytes(token_id))}
            for token_id in tokenizer.encode(text)
        ]
    _print_summary(summary, as_json)


@app.command()
def compare(
    paths: Annotated[
        list[Path], typer.Argument(metavar="TOKENIZER... TEXT", help="Tokenizers, then a text.")
    ],
    field: Field = "text",
    encoding: Encoding = "utf-8",
    as_json: JsonOption = False,
) -> None:
    """Count the tokens that several tokenizers need for one text."""
    from llamita.text.documents import read_documents
    from llamita.tokenizer.load import tokenizer_of

    *tokenizer_paths, text_path = paths
    if not tokenizer_paths:
        raise TokenizerError(
            "there is nothing to compare.", hint="Give one or more tokenizers, then a text file."
        )
    tokenizers = [tokenizer_of(path) for path in tokenizer_paths]
    counts = [0] * len(tokenizers)
    lossless = [True] * len(tokenizers)
    size = 0
    with progress_bar("tokenizing", None, "bytes") as bar:
        documents = _counted(read_documents([text_path], field=field, encoding=encoding), bar)
        while batch := [document.text for document in islice(documents, _BATCH_DOCUMENTS)]:
            size += sum(len(text.encode()) for text in batch)
            for index, tokenizer in enumerate(tokenizers):
                encoded = tokenizer.encode_batch(batch)
                counts[index] += sum(map(len, encoded))
                lossless[index] &= list(map(tokenizer.decode, encoded)) == batch
    rows = [
        {
            "tokenizer": str(path),
            "kind": tokenizer.kind,
            "vocab_size": tokenizer.vocab_size,
            "tokens": count,
            "bytes_per_token": size / count if count else 0.0,
            "lossless": whole,
        }
        for path, tokenizer, count, whole in zip(
            tokenizer_paths, tokenizers, counts, lossless, strict=True
        )
    ]
    if as_json:
        print(json.dumps({"text": str(text_path), "bytes": size, "tokenizers": rows}))
    else:
        print(f"{text_path}: {size:,} bytes")
        _print_table(rows)


def _counted(documents: Iterator[Document], bar: ProgressBar) -> Iterator[Document]:
    for document in documents:
        bar.advance(len(document.text.encode()))
        yield document


def _describe(tokenizer: Tokenizer, path: Path) -> dict[str, Any]:
    return {
        "path": str(path),
        **tokenizer.summary(),
        "add_bos": tokenizer.add_bos,
        "lossy": tokenizer.lossy,
    }


def _print_summary(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary))
        return
    names = {token_id: name for name, token_id in summary["special_tokens"].items()}
    print(f"{summary['path']}: {summary['kind']}, {summary['vocab_size']:,} tokens")
    for role in ("bos", "eos", "pad"):
        token_id = summary[f"{role}_token_id"]
        if token_id is not None:
            print(f"  {role}: {token_id} {names.get(token_id, '')}".rstrip())
    print(f"  BOS in front of prompts: {'yes' if summary['add_bos'] else 'no'}")
    print(f"  gives every text back: {'no, ' + summary['lossy'] if summary['lossy'] else 'yes'}")
    print(f"  control tokens: {' '.join(names.values()) or 'none'}")
    if "tokens" in summary:
        print(f"  the text in {len(summary['tokens'])} tokens:")
        for token in summary["tokens"]:
            print(f"  {token['id']:>8}  {token['text']}")


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    lines = [("tokenizer", "kind", "vocabulary", "tokens", "bytes/token", "lossless")]
    lines += [
        (
            row["tokenizer"],
            row["kind"],
            f"{row['vocab_size']:,}",
            f"{row['tokens']:,}",
            f"{row['bytes_per_token']:.3f}",
            "yes" if row["lossless"] else "no",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *others in lines:
        cells = [value.rjust(width) for value, width in zip(others, widths[1:], strict=True)]
        print("  ".join([name.ljust(widths[0]), *cells]))


def _printable(data: bytes) -> str:
    """A token in quotes, with control characters and broken UTF-8 as escapes."""
    text = data.decode("utf-8", errors="backslashreplace")
    return repr(text).replace("\\\\x", "\\x")

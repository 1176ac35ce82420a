"""`llamita eval MODEL --text FILE`: how many bits the model needs for each byte of a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llamita.cli.options import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelArgument,
    OverrideOption,
    PresetOption,
    TokenizerOption,
)

if TYPE_CHECKING:
    from llamita.evaluation.bits_per_byte import BitsPerByte
    from llamita.inference.lm import LM
    from llamita.text.sources import TextFile


def command(
    model: ModelArgument,
    text: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="Held-out text: .txt, .md, .jsonl, also as .gz or .zst, or a folder of them; "
            "may be given several times.",
        ),
    ],
    field: Annotated[str, typer.Option(help="The JSONL field that holds the text.")] = "text",
    encoding: Annotated[str, typer.Option(help="The encoding of the text files.")] = "utf-8",
    limit_bytes: Annotated[
        int | None, typer.Option(min=1, help="Only the first N bytes of the text.")
    ] = None,
    context_length: Annotated[
        int | None, typer.Option(help="Windows shorter than the model's own context.")
    ] = None,
    json: JsonOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    override: OverrideOption = None,
    preset: PresetOption = None,
    tokenizer: TokenizerOption = None,
) -> None:
    """Measure bits per byte of a model on held-out text, with the standard error."""
    from llamita.text.decoding import check_encoding
    from llamita.text.sources import find_text_files

    check_encoding(encoding)
    files = find_text_files(text).files  # both are told before the model is loaded

    import llamita

    lm = llamita.load(
        model,
        device=device,
        dtype=dtype,
        override=override,
        preset=preset,
        tokenizer=tokenizer,
    )
    result = _evaluate(lm, files, field, encoding, limit_bytes, context_length)
    print(_json(result) if json else _summary(result))


def _evaluate(
    lm: LM,
    files: Sequence[TextFile],
    field: str,
    encoding: str,
    limit_bytes: int | None,
    context_length: int | None,
) -> BitsPerByte:
    from llamita.cli.progress import progress_bar
    from llamita.errors import TokenizerError
    from llamita.evaluation.bits_per_byte import bits_per_byte
    from llamita.text.documents import read_files

    if lm.tokenizer is None:
        raise TokenizerError(
            "this model has no tokenizer, so text cannot be scored.",
            hint="Name its tokenizer with --tokenizer PATH.",
        )
    texts = (document.text for document in read_files(files, field=field, encoding=encoding))
    # Of compressed files the length of the text is not known beforehand.
    known = limit_bytes is not None or not any(file.compression for file in files)
    size = limit_bytes or sum(file.path.stat().st_size for file in files)
    with progress_bar("evaluate", size / 1e6 if known else None, "MB") as bar:
        return bits_per_byte(
            lm.model,
            lm.tokenizer,
            texts if limit_bytes is None else first_bytes(texts, limit_bytes),
            context_length=context_length,
            progress=lambda scored: bar.advance(scored / 1e6),
        )


def first_bytes(texts: Iterable[str], limit: int) -> Iterator[str]:
    """The texts up to `limit` UTF-8 bytes in all; the last is cut between two characters."""
    for text in texts:
        data = text.encode("utf-8")
        if len(data) >= limit:
            yield data[:limit].decode("utf-8", errors="ignore")
            return
        limit -= len(data)
        yield text


def _json(result: BitsPerByte) -> str:
    import dataclasses
    import json
    import math

    values = dataclasses.asdict(result)
    error = result.bits_per_byte_stderr
    return json.dumps({**values, "bits_per_byte_stderr": None if math.isnan(error) else error})


def _summary(result: BitsPerByte) -> str:
    import math

    error = result.bits_per_byte_stderr
    spread = "" if math.isnan(error) else f" ± {error:.4f}"  # one token alone has none
    return (
        f"{result.bits_per_byte:.4f}{spread} bits per byte  "
        f"({result.bytes:,} bytes, {result.tokens:,} tokens, "
        f"perplexity {result.perplexity:.2f} per token)"
    )

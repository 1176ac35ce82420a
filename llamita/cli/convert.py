"""`llamita convert SRC DST --to FORMAT`: any checkpoint as any other, with proof."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from llamita.cli.options import JsonOption, OverrideOption
from llamita.errors import CheckFailed


def command(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Any checkpoint, or a RUN.")],
    destination: Annotated[
        Path,
        typer.Argument(
            metavar="DST",
            help="A new folder; with the suffix .gguf (gguf) or .pt (hermes, armgpt) a new file.",
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(help="hf, meta, hermes, armgpt or gguf; told by DST's suffix if it can be."),
    ] = None,
    quant: Annotated[
        str | None,
        typer.Option(
            help="f32, f16, bf16; for gguf also q8_0, q4_0, q4_1. Left out, every number stays "
            "as it is."
        ),
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not compare the result with the source.")
    ] = False,
    no_tokenizer: Annotated[
        bool, typer.Option("--no-tokenizer", help="Leave the tokenizer out.")
    ] = False,
    drop_normalizer: Annotated[
        bool,
        typer.Option(
            "--drop-normalizer",
            help="To gguf, which has none: leave out the steps of the tokenizer that change text.",
        ),
    ] = False,
    tokenizer: Annotated[
        Path | None, typer.Option(help="The source's tokenizer, where it lies elsewhere.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="The shape of a source that holds weights alone.")
    ] = None,
    override: OverrideOption = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Text to measure bits per byte on, before and after."),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GB",
            help="What verifying may take; 2.5 if left out. Larger models are read part by part.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what a former conversion left at DST.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Convert a checkpoint, read the result back and compare; exit 1 where it is not the same."""
    from llamita.cli.progress import say
    from llamita.formats.config_read import parse_overrides
    from llamita.shipping.convert import Conversion, convert, parse_text
    from llamita.shipping.report import table
    from llamita.shipping.verify_conversion import DEFAULT_MEMORY, FAILED

    report = convert(
        Conversion(
            source,
            destination,
            target=to,
            quantization=quant,
            verify=not no_verify,
            keep_tokenizer=not no_tokenizer,
            drop_normalizer=drop_normalizer,
            tokenizer=tokenizer,
            preset=preset,
            overrides=parse_overrides(override) if override else None,
            texts=parse_text(text),
            memory=DEFAULT_MEMORY if memory is None else memory * 1e9,
            overwrite=overwrite,
        ),
        say,
    )
    print(json_module.dumps(report) if json else table(report))
    if report["status"] == FAILED:
        raise CheckFailed(
            f"{destination} is not the same model as {source}; it is marked as unverified.",
            hint="Do not use it. verify.json says what differs.",
        )

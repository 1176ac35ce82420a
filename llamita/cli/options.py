"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MODEL_HELP = (
    "A model directory, a RUN, a .gguf file, a Hermes or ArmGPT .pt, a folder of Meta's shards, or "
    "of an adapter (PEFT); told apart by content."
)
PRESET_HELP = (
    "The shape of a Hermes state dict that says none: 270m, 500m, 1b, gemma-3-1b, gemma-2-2b."
)
TOKENIZER_HELP = "The model's tokenizer, a file or a directory, where it does not lie with it."
CHAT_FORMATS = (
    "chatml-tools (Hermes', the default), chatml-signatures (the same with shorter lists of tools, "
    "for small models), armgpt, llama2 or llama3"
)

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP, show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
DeviceOption = Annotated[
    str | None, typer.Option(help="Where to run: cpu, cuda, … Left out, the best there is.")
]
DtypeOption = Annotated[
    str | None, typer.Option(help="Precision of the weights: float32, bfloat16, float16, float64.")
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting the checkpoint lacks or has wrong."),
]
PresetOption = Annotated[str | None, typer.Option(metavar="NAME", help=PRESET_HELP)]
TokenizerOption = Annotated[Path | None, typer.Option(metavar="PATH", help=TOKENIZER_HELP)]
KVCacheDtypeOption = Annotated[
    str | None,
    typer.Option(
        "--kv-cache-dtype",
        metavar="DTYPE",
        help="Precision of the cache: float32 or bfloat16. Left out, that of the weights.",
    ),
]
CompileOption = Annotated[
    bool,
    typer.Option(
        "--compile", help="Compile the model first: faster, after minutes the first time."
    ),
]

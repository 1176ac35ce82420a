"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model directory or a RUN.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
DeviceOption = Annotated[
    str | None, typer.Option(help="Where to run: cpu, cuda, … Left out, the best there is.")
]
DtypeOption = Annotated[
    str | None, typer.Option(help="Precision of the weights: float32, bfloat16, float16.")
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting the checkpoint lacks or has wrong."),
]

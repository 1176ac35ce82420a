"""`llamita report RUN`: curves, samples and settings as one HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from llamita.cli.options import JsonOption
from llamita.errors import TrainingError


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…", help="A folder made by train, going on or finished; several overlay."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE.html", help="Left out, report.html in the RUN's folder."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write an HTML page of a training run: one file that also a phone shows."""
    from llamita.training.reporting.record import read_record
    from llamita.training.reporting.report import REPORT_NAME, write_report

    if out is None and len(runs) > 1:
        raise TrainingError(
            f"{len(runs)} runs make one report, which belongs to no single one.",
            hint="Name its file: -o FILE.html",
        )
    records = [read_record(run) for run in runs]
    path = out or runs[0] / REPORT_NAME
    if path.is_dir():
        path = path / REPORT_NAME
    size = write_report(records, path)
    if as_json:
        figures = [record.figures() for record in records]
        print(json.dumps({"report": str(path), "bytes": size, "runs": figures}))
        return
    for record in records:
        for note in record.missing:
            typer.echo(f"{record.name}: {note}", err=True)
    print(path)

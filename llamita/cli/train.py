"""`llamita train DATA -o RUN`: pretrain a model; the same command again resumes it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from llamita.cli.options import JsonOption
from llamita.config import PRESETS


def command(
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DATA",
            help="Folders made by prepare, or of token bins of ArmGPT or nanoGPT (train.bin). Left "
            "out: the data of --config or of the run.",
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="RUN", help="The run's folder.")],
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="0.7,0.3",
            help="What part of the training each DATA is; left out, it counts by its tokens.",
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help=f"The model's shape: {', '.join(PRESETS)}.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for about this long.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Train on this many tokens.")] = None,
    steps: Annotated[int | None, typer.Option(help="Train for this many steps.")] = None,
    config: Annotated[Path | None, typer.Option(help="A recipe, in TOML.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting, as optimizer.name=muon."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the weights and the order.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Only go on, never start anew.")] = False,
    allow_changed_data: Annotated[
        bool,
        typer.Option("--allow-changed-data", help="Resume or replay although the data changed."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Pretrain a model on prepared data. The same command again resumes a stopped run."""
    from llamita.training.inputs import given_sources
    from llamita.training.recipe_file import build_recipe

    sources = given_sources(data or [], weights)

    length = {"minutes": minutes, "tokens": tokens, "steps": steps}
    flags: dict[str, Any] = {
        "model": {} if preset is None else {"preset": preset},
        "length": {name: value for name, value in length.items() if value is not None},
    }
    has_settings = bool(config or assignments or seed is not None or any(flags.values()))
    recipe = None
    if has_settings:
        if seed is not None:
            assignments = [f"seed={seed}", *(assignments or [])]
        recipe = build_recipe(config, assignments or [], flags)
    from llamita.cli.training_progress import training_observer
    from llamita.data.prepare import VALIDATION_NAME
    from llamita.formats.detect import LATEST
    from llamita.training.run import train

    with training_observer() as observer:
        summary = train(
            sources,
            out,
            recipe,
            must_exist=resume,
            allow_changed_data=allow_changed_data,
            observer=observer,
        )
    latest = summary.run / LATEST
    if as_json:
        result = {
            "run": str(summary.run),
            "model": str(latest),
            "steps": summary.steps,
            "parameters": summary.parameters,
            "training_seconds": round(summary.training_seconds, 1),
        }
        print(json.dumps(result))
        return
    print(
        f"{summary.steps} steps in {summary.training_seconds:.0f} s, "
        f"{summary.parameters:,} parameters{' (finished before)' if summary.was_finished else ''}."
    )
    run, texts = shlex.quote(str(summary.run)), [path / VALIDATION_NAME for path in summary.data]
    print(f"The model is in {latest}. Try:")
    print(f'  llamita generate {run} "Once"')
    for text in [text for text in texts if text.exists()][:1]:
        print(f"  llamita eval {run} --text {shlex.quote(str(text))}")

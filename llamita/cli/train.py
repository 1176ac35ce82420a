"""`llamita train DATA -o RUN`: pretrain a model; the same command again resumes it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from llamita.cli.options import JsonOption
from llamita.config import PRESETS
from llamita.errors import ConfigError


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
        str | None,
        typer.Option(metavar="NAME", help=f"The model's shape by name: {', '.join(PRESETS)}."),
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The model's shape by its number of parameters, token table included: 500k, 10m, "
            "1.3b.",
        ),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Go on from this model, in any format, instead of fresh weights. It gives the "
            "shape; its token rows follow the tokenizer of DATA. To keep its tokenizer: prepare "
            "--tokenizer MODEL.",
        ),
    ] = None,
    teacher: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Learn from this model's predictions as well (distillation); its tokenizer must "
            "be that of DATA. Settings: teacher.weight (0.5), teacher.temperature (1).",
        ),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for about this long.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Train on this many tokens.")] = None,
    steps: Annotated[int | None, typer.Option(help="Train for this many steps.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A recipe in TOML, or the JSON of llamita plan.")
    ] = None,
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
    """Pretrain a model on prepared data, from scratch or from a model.

    The same command again resumes a stopped run. On several GPUs or machines: torchrun
    --nproc-per-node N -m llamita train DATA -o RUN …, with N processes on each (docs/cluster.md).
    """
    from llamita.training.settings.recipe_file import build_recipe
    from llamita.training.sources.inputs import given_sources

    sources = given_sources(data or [], weights)

    _check_one_shape(preset, params, init)
    shape = {"preset": preset, "params": params}
    length = {"minutes": minutes, "tokens": tokens, "steps": steps}
    flags: dict[str, Any] = {
        name: {key: value for key, value in table.items() if value is not None}
        for name, table in (("model", shape), ("length", length))
    }
    single = {"seed": seed, "init": init, "teacher.model": teacher}
    given = [
        f"{key}={json.dumps(str(value.absolute()) if isinstance(value, Path) else value)}"
        for key, value in single.items()
        if value is not None
    ]
    recipe = None
    if config or assignments or given or any(flags.values()):
        recipe = build_recipe(config, [*given, *(assignments or [])], flags)
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
    if summary.is_told:
        return
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


def _check_one_shape(preset: str | None, params: str | None, init: Path | None) -> None:
    flags = {"--preset": preset, "--params": params, "--init": init}
    given = [f"{flag} {value}" for flag, value in flags.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(
            f"{' and '.join(given)} are both given, and each says what shape the model has.",
            hint="Give one of them: --init goes on from a model, the others start from scratch.",
        )

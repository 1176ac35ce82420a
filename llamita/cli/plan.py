"""`llamita plan TEXT…`: what model fits this text, this machine and a time, before it is spent."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llamita.cli.options import JsonOption
from llamita.cli.progress import say
from llamita.errors import ConfigError, DataError

if TYPE_CHECKING:
    from llamita.training.planning.plan import Plan

DEFAULT_HOURS = 1.0
MOST_SECONDS = 1e9
# Python itself, before and after what is imported here.
PYTHON_SECONDS = 0.5


def command(
    text: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TEXT", help="Text as for prepare, or folders that prepare made (DATA)."
        ),
    ] = None,
    *,
    hours: Annotated[float | None, typer.Option(help="How long to train; 1 hour.")] = None,
    minutes: Annotated[float | None, typer.Option(help="The same in minutes.")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="As for prepare; left out, BPE of a size that fits the text."),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Write the recipe here, for train --config."),
    ] = None,
    measure_seconds: Annotated[
        float | None, typer.Option(help="How long that may take, about; 112.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="On paper instead: a cluster of so many GPUs, without TEXT.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="The GPUs of --ranks: h100, a100, …")] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --ranks: this shape alone.")
    ] = None,
    params: Annotated[
        str | None, typer.Option(metavar="SIZE", help="With --ranks: a model of this size.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what model fits a text, this machine and a time: size, tokens, memory, bits per byte.

    Measures this machine and makes a pilot run on the text, in two minutes at most.
    """
    if ranks is not None or device is not None:
        from llamita.cli.plan_cluster import cluster_models, print_cluster

        _refuse_beside_ranks(
            hours=hours,
            minutes=minutes,
            tokenizer=tokenizer,
            recipe=recipe,
            measure_seconds=measure_seconds,
        )
        models = cluster_models(ranks, device, text or [], preset, params)
        print_cluster(models, as_json)
        return
    if preset or params:
        raise ConfigError(
            f"{preset or params} is given without --ranks: the size is what is planned here.",
            hint="To train that one: llamita train DATA -o RUN --preset NAME or --params SIZE",
        )
    seconds = _budget(hours, minutes)
    if measure_seconds is not None and not 0 < measure_seconds < MOST_SECONDS:
        raise ConfigError(
            f"--measure-seconds is {measure_seconds:g}; it must be above 0.",
            hint="Leave it out to measure for two minutes at most.",
        )
    if not text:
        raise DataError(
            "there is no TEXT to plan for.",
            hint="Give it: llamita plan TEXT… --hours 1. For a cluster, on paper: "
            "llamita plan --ranks 8 --device h100",
        )
    if recipe is not None:
        _check_writable(recipe)  # before two minutes are spent
    begun = time.perf_counter()
    import llamita.training.run  # noqa: F401  # what every training command loads
    from llamita.training.interrupt import raised_ends
    from llamita.training.planning.data import ready_to_measure
    from llamita.training.planning.planner import MEASURE_SECONDS, Planner
    from llamita.training.planning.report import as_json as plan_json

    loading = time.perf_counter() - begun + PYTHON_SECONDS
    limit = MEASURE_SECONDS if measure_seconds is None else measure_seconds
    with raised_ends(), TemporaryDirectory(prefix="llamita-plan-") as folder:
        ready = ready_to_measure(text, tokenizer, Path(folder), say)
        planner = Planner(
            ready.sources,
            text_share=ready.text_share,
            start_seconds=loading,
            measure_seconds=limit - (time.perf_counter() - begun),
            work=Path(folder),
            say=say,
        )
        plan = planner.plan(seconds)
    result = plan_json(plan)
    result["recipe"] |= ready.recipe_data
    if as_json:
        print(json.dumps({**result, "prepare": ready.preparation}))
    else:
        _print_plan(plan, _next(text, ready.preparation, recipe, result["recipe"]))
    if recipe is not None:
        _write_recipe(result["recipe"], recipe)


def _print_plan(plan: Plan, commands: list[str]) -> None:
    from llamita.training.planning.report import describe, notes, spell_seconds

    print(f"For {spell_seconds(plan.budget_seconds)} on this machine:")
    for name, value in describe(plan):
        print(f"  {name:<14} {value}")
    for note in notes(plan):
        print(note)
    print("next:")
    for line in commands:
        print(f"  {line}")


def _budget(hours: float | None, minutes: float | None) -> float:
    """Seconds to plan for."""
    if hours is not None and minutes is not None:
        raise ConfigError(
            f"--hours {hours:g} and --minutes {minutes:g} are both given; only one can hold."
        )
    if minutes is not None:
        name, value, seconds = "--minutes", minutes, 60 * minutes
    else:
        value = DEFAULT_HOURS if hours is None else hours
        name, seconds = "--hours", 3600 * value
    if not 0 < seconds < MOST_SECONDS:
        raise ConfigError(
            f"{name} is {value:g}; it must be above 0, and less than {MOST_SECONDS / 3.156e7:.0f} "
            "years.",
            hint="Such as --minutes 30.",
        )
    return seconds


def _refuse_beside_ranks(**options: object) -> None:
    """A cluster is planned on paper: what says how to measure this machine has no meaning."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(
                f"--{name.replace('_', '-')} {value} is given beside --ranks or --device: a "
                "cluster is planned on paper, for no text and no time.",
                hint="Leave it out, or leave --ranks and --device out to measure this machine.",
            )


def _check_writable(recipe: Path) -> None:
    folder = recipe.absolute().parent
    if not folder.is_dir():
        raise ConfigError(
            f"--recipe is {recipe}, and there is no folder {recipe.parent}.",
            hint="Make it, or name a file in a folder that is there.",
        )
    if recipe.is_dir():
        raise ConfigError(
            f"--recipe is {recipe}, which is a folder.",
            hint=f"Name a file, such as {recipe / 'plan.toml'}",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"--recipe is {recipe}, and nothing can be written to {recipe.parent}.",
            hint="Name a file in a folder of your own.",
        )


def _write_recipe(settings: dict[str, Any], path: Path) -> None:
    import tomli_w

    from llamita.files import atomic_write_text

    atomic_write_text(path, tomli_w.dumps(settings))


def _next(
    text: list[Path], preparation: dict[str, Any], recipe: Path | None, settings: dict[str, Any]
) -> list[str]:
    """The commands that do as planned; a recipe that names its DATA needs none beside it."""
    names = " ".join(shlex.quote(str(path)) for path in text)
    lines, data = [], names
    if preparation:
        options = " ".join(
            f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
            for name, value in preparation.items()
        )
        lines.append(f"llamita prepare {names} -o DATA {options}")
        data = "DATA"
    if recipe is None:
        return [*lines, f"llamita train {data} -o RUN {' '.join(_flags(settings))}"]
    before = f"{data} " if preparation else ""
    return [*lines, f"llamita train {before}-o RUN --config {shlex.quote(str(recipe))}"]


def _flags(settings: dict[str, Any]) -> list[str]:
    """Settings as options of `train`; what is so by itself is left out."""
    from llamita.training.settings.recipe import Recipe

    usual = Recipe().model_dump(mode="json")
    flags = [f"--params {settings['model']['params']}", f"--steps {settings['length']['steps']}"]
    for table in ("batch", "optimizer", "watch", "machine"):
        flags += [
            f"--set {table}.{name}={value}"
            for name, value in settings.get(table, {}).items()
            if value != usual[table][name]
        ]
    return flags

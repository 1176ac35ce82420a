"""`llamita finetune MODEL CHATS.jsonl -o OUT`: chats and tool calls; run it again to resume."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from llamita.cli.options import CHAT_FORMATS, MODEL_HELP, JsonOption

if TYPE_CHECKING:
    from llamita.training.finetuning.finetune import FineTuned


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    chats: Annotated[
        list[Path],
        typer.Argument(
            metavar="CHATS.jsonl",
            help="Conversations, one a line or one list in a .json, also as .gz or .zst: Hermes' "
            "or OpenAI's messages and tools, ShareGPT's conversations, Alpaca's instruction, input "
            "and output; told apart line by line.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="The run's folder.")],
    val: Annotated[
        list[Path] | None,
        typer.Option(metavar="CHATS", help="Conversations to validate on, not to learn from."),
    ] = None,
    val_fraction: Annotated[
        float | None,
        typer.Option(help="The share of CHATS to hold out for that instead; 0.1 if left out."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for about this long.")] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Read the conversations so many times; 3 if left out.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Train for this many steps.")] = None,
    lora: Annotated[
        int | None,
        typer.Option(
            metavar="RANK",
            help="Train low-rank adapters of this rank (16, say) in place of all weights. OUT/best "
            "is a whole model all the same; OUT/adapter is the adapter in PEFT's format.",
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            help="Tokens of the longest conversation; left out, what they need, at most the "
            "model's own and 2048."
        ),
    ] = None,
    long: Annotated[
        Literal["drop", "cut"] | None,
        typer.Option(
            help="Conversations that are longer are left out (drop, the default), or end with the "
            "last whole turn of the assistant that fits (cut). They are counted either way."
        ),
    ] = None,
    chat_format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"What a model without a chat template learns: {CHAT_FORMATS}.",
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after so many validations without a better loss; 0, never, if left out."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="A recipe (docs/recipes.md).")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting, as lora.dropout=0.05."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the order and of new adapters.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Only go on, never start anew.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Teach a model to chat and to call tools; the same command again resumes a stopped run.

    What the assistant says is learned, tool calls and the end of each turn included, in all turns;
    the rest is only read. OUT/best is the model with the lowest validation loss.
    """
    from llamita.cli.prepare import PhaseBars
    from llamita.cli.training_progress import training_observer
    from llamita.training.finetuning.chat_data import Chats
    from llamita.training.finetuning.finetune import prepare_finetuning, recipe_for
    from llamita.training.settings.recipe_file import asked_settings

    tables: dict[str, dict[str, Any]] = {
        "length": {"minutes": minutes, "steps": steps},
        "watch": {"patience": patience},
        "lora": {"rank": lora},
    }
    flags: dict[str, Any] = {
        name: {key: value for key, value in table.items() if value is not None}
        for name, table in tables.items()
    }
    of_data = (val, val_fraction, context, epochs, long)
    recipe, asked = None, None
    if (
        config
        or assignments
        or seed is not None
        or any(flags.values())
        or any(value is not None for value in of_data)
    ):
        single = [] if seed is None else [f"seed={seed}"]
        settings = [*single, *(assignments or [])]
        recipe = recipe_for(model, config, settings, flags)
        asked = asked_settings(config, settings, flags)
    wanted = Chats(chats, val or (), val_fraction, context, long)
    with PhaseBars() as bars:
        prepared = prepare_finetuning(
            model,
            wanted,
            out,
            recipe,
            epochs=epochs,
            must_exist=resume,
            asked=asked,
            chat_format=chat_format,
            reporter=bars,
        )
    with training_observer() as observer:
        result = prepared.train(observer)
    if not result.summary.is_told:
        print(json.dumps(_figures(result)) if as_json else _told(result))


def _figures(result: FineTuned) -> dict[str, Any]:
    summary, manifest = result.summary, result.data.manifest
    adapter = summary.run / "adapter"
    return {
        "run": str(summary.run),
        "model": str(_model(result)),
        "steps": summary.steps,
        "stopped_early": summary.stopped_early,
        "best_step": summary.best_step,
        "best_validation_loss": summary.best_loss,
        "parameters": summary.parameters,
        "trained_parameters": result.trained_parameters,
        "adapter": str(adapter) if adapter.is_dir() else None,
        "conversations": manifest.train.documents,
        "held_out_conversations": manifest.val.documents,
        "dropped_conversations": manifest.dropped_chats,
        "cut_conversations": manifest.cut_chats,
        "split_conversations": manifest.split_chats,
        "added_tokens": list(result.added_tokens),
        "training_seconds": round(summary.training_seconds, 1),
    }


def _told(result: FineTuned) -> str:
    summary = result.summary
    ended = " (finished before)" if summary.was_finished else ""
    ended += ", stopped early" if summary.stopped_early else ""
    lines = [f"{summary.steps} steps in {summary.training_seconds:.0f} s{ended}."]
    model = _model(result)
    if summary.best_step is None:
        lines.append(f"Nothing was held out, so no step is known as best; the last is in {model}.")
    else:
        lines.append(
            f"Step {summary.best_step} is best (validation loss {summary.best_loss:.3f}): {model}."
        )
    adapter = summary.run / "adapter"
    if adapter.is_dir():
        lines.append(f"The adapter alone, in PEFT's format, is in {adapter}.")
    lines.append("Try:")
    lines.append(f"  llamita chat {shlex.quote(str(model))}")
    return "\n".join(lines)


def _model(result: FineTuned) -> Path:
    from llamita.formats.detect import BEST, LATEST

    return result.summary.run / (LATEST if result.summary.best_step is None else BEST)

"""`llamita data tool-tasks`: the synthetic tool-use set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from llamita.cli.options import JsonOption

app = typer.Typer(
    help="Sets of conversations to learn from.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _verbs() -> None:
    """Sets of conversations to learn from."""


@app.command("tool-tasks")
def tool_tasks(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.jsonl", help="The file to write.")
    ],
    count: Annotated[
        int | None,
        typer.Option(help="Conversations; left out, 15,000 to learn from, 500 to test."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same file.")] = 0,
    split: Annotated[
        Literal["train", "test"],
        typer.Option(
            help="To learn from, or to test: with other wordings and other numbers, units to "
            "convert, notes and labels."
        ),
    ] = "train",
    tools: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="The tools that may be listed: calculator, convert_units, add_note, list_notes, "
            "delete_note, set_timer, list_timers; left out, all.",
        ),
    ] = None,
    words_of: Annotated[
        str | None,
        typer.Option(
            "--words-of",
            metavar="MODEL",
            help="The model, or tokenizer, that will learn from them: exercises then have the "
            "words of its vocabulary, as it cannot copy a token that it never met.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write conversations with tools: sums, units, notes, timers, and talk that needs no tool.

    Each line has `messages` and `tools` as OpenAI has them, with exact calls, results and answers,
    and `kinds`, the kind of task of each of the person's messages.
    """
    from llamita.data.tool_tasks.generate import DEFAULT_COUNT, TOOLS, write_tool_tasks
    from llamita.data.tool_tasks.lexicon import words_of as words_of_tokenizer
    from llamita.tokenizer.load import tokenizer_of

    size = DEFAULT_COUNT[split] if count is None else count
    names = TOOLS if tools is None else [name.strip() for name in tools.split(",")]
    words = () if words_of is None else words_of_tokenizer(tokenizer_of(words_of))
    kinds = write_tool_tasks(out, split, size, seed, names, words)
    if as_json:
        print(json.dumps({"file": str(out), "conversations": size, "tasks": kinds}))
        return
    print(f"{out}: {size:,} conversations")
    for kind, tasks in kinds.items():
        print(f"  {kind:<15} {tasks:,}")

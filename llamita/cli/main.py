"""`llamita COMMAND …`: finds the command's module, imports it alone, and runs it.

The table below is all that `llamita --help` needs, so help answers without importing PyTorch. A
command module holds either a function `command` or, for a command with verbs of its own, a Typer
application `app`.
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import llamita
from llamita.errors import LlamitaError

COMMANDS = {
    "demo": "the whole way on real text: prepare, train, evaluate, sample",
    "plan": "what model fits a text, this machine and a time, and what it will come to",
    "prepare": "text files into a tokenizer and token shards",
    "tokenizer": "train, inspect and compare tokenizers",
    "train": "pretrain a model; run it again to resume",
    "finetune": "teach a model to chat and to call tools",
    "merge": "a low-rank adapter and its base as one model",
    "data": "write the synthetic tool-use set",
    "report": "a training run's curves and samples, as one HTML page",
    "eval": "how good a model is: bits per byte, questions, tool calls, lm-eval tasks",
    "generate": "continue a prompt, streamed",
    "chat": "talk with a model that may call tools",
    "inspect": "what is in this checkpoint, data folder or run",
    "convert": "any checkpoint to any other format, with proof that it is the same model",
    "verify": "are two checkpoints the same model?",
    "bench": "how fast it reads and writes here, and how near that is to the limit",
}

_INVALID = re.compile(r"Invalid value for '?(?P<name>[^']+)'?: Input(?P<reason> should be [^,]+)")

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # PyTorch's threads wait for each other by spinning. By default they spin for so long that one
    # busy neighbour on a machine of few cores slows training fifteenfold, and decoding four times.
    # 1000 costs training nothing; a decode step's many short products lose a third by it, and
    # nearly nothing by 10000, with which a busy neighbour halves the rate, as is its share.
    spins = "10000" if arguments[:1] in (["generate"], ["chat"], ["bench"]) else "1000"
    os.environ.setdefault("GOMP_SPINCOUNT", spins)
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that cannot show a character gets "?" for it, not a crash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 done, 1 check failed, 2 bad input, 130 Ctrl-C."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    debug = "--debug" in arguments[:end]
    arguments = [a for i, a in enumerate(arguments) if a != "--debug" or i > end]
    if sys.stdout is None:  # python gives none where it is closed
        print("llamita: stdout is closed, so there is nowhere to print to.", file=sys.stderr)
        return EXIT_BAD_INPUT
    try:
        if not arguments or arguments[0] in ("--help", "-h", "help"):
            print(_help(), flush=True)
            return 0
        if arguments[0] == "--version":
            print(f"llamita {llamita.__version__}", flush=True)
            return 0
        with _with_others(arguments[0]):
            code = _run_command(arguments[0], arguments[1:])
        sys.stdout.flush()
        return code
    except LlamitaError as error:
        if error.is_told:
            return error.exit_code
        return _report(error, error.message, error.hint, error.exit_code, debug)
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe (`| head`) left: no fault, but nothing may be flushed to it any more.
        if sys.__stdout__ is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
        return 0
    except OSError as error:
        return _report(error, _describe(error), None, EXIT_BAD_INPUT, debug)


def _with_others(name: str) -> AbstractContextManager[object]:
    """Of the processes that torchrun starts, one tells what is wrong with a command."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return nullcontext()
    if name != "train":
        if "TORCHELASTIC_RUN_ID" not in os.environ:  # the variable is of something else
            return nullcontext()
        error = LlamitaError(
            f"torchrun starts several processes, and llamita {name} is for one.",
            hint="Leave torchrun out; llamita train is for several.",
        )
        error.is_told = os.environ.get("RANK", "0") != "0"
        raise error
    from llamita.training.ranks.world import World

    return World.join()


def _run_command(name: str, arguments: list[str]) -> int:
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "`llamita --help` lists the commands."
        raise LlamitaError(f"there is no command {name!r}.", hint=hint)
    import typer

    module = importlib.import_module(f"llamita.cli.{name}")
    app: typer.Typer | None = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        app.command(name, help=module.command.__doc__)(module.command)
    try:
        code = app(args=arguments, prog_name=f"llamita {name}", standalone_mode=False)
    except SystemExit:  # Typer took the closed pipe
        raise BrokenPipeError from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        if not hasattr(error, "format_message"):  # Typer's own has, for what cannot be parsed
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)
            return EXIT_BAD_INPUT
        raise _usage_error(error) from None
    if code == EXIT_INTERRUPTED:  # Typer took the Ctrl-C
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _usage_error(error: Any) -> LlamitaError:
    """One line that says what is wrong, and one that says what would be right."""
    message = error.format_message().strip()
    context = getattr(error, "ctx", None)
    hint = f"`{context.command_path if context else 'llamita'} --help` explains it."
    found = _INVALID.match(message)
    if found and hasattr(error.__cause__, "errors"):  # pydantic's, which keeps the value
        value = error.__cause__.errors()[0]["input"]
        return LlamitaError(f"{found['name']} is {value!r}.", hint=f"It{found['reason']}.")
    if "unexpected extra argument" in message:
        hint = f"A text of several words stands in quotes. {hint}"
    return LlamitaError(f"{message[:1].lower()}{message[1:].rstrip('.')}.", hint=hint)


def _report(error: Exception, message: str, hint: str | None, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    print(f"llamita: {message}", file=sys.stderr)
    if hint:
        print(hint, file=sys.stderr)
    return code


def _describe(error: OSError) -> str:
    name = f" {error.filename}" if error.filename else ""
    return f"the system says of{name or ' this'}: {error.strerror or error}."


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: llamita COMMAND [ARGUMENTS] [--debug]",
            "",
            "From text to a small language model of your own.",
            "",
            *lines,
            "",
            "`llamita COMMAND --help` explains one command; `--version` tells the version.",
        ]
    )

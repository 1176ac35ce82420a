"""The errors a person can cause, each with one clear message and a way out.

Every mistake of a user raises a `LlamitaError`; the command line prints its message and its hint
and exits with its `exit_code`. A plain Python exception is a fault of llamita itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

LONGEST_MESSAGE = 2000
"""Characters; what is left out of a longer one is its middle."""


class LlamitaError(Exception):
    """Something the user can mend. `message` says what is wrong, `hint` says what to do.

    `is_told`: another process of the same run prints it.
    """

    exit_code = 2
    is_told = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = _one_line(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else _one_line(hint)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


@contextlib.contextmanager
def naming(source: Path) -> Iterator[None]:
    """Errors from within say which file they are about: one that does not gets `source` in front.

    A failing system call, such as of a folder that may not be read, is an error of that kind too.
    """
    try:
        yield
    except LlamitaError as error:
        if source.name in error.message:
            raise
        raise type(error)(f"{source}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise CheckpointError(f"cannot read {source}: {error.strerror or error}.") from error


def _one_line(message: str) -> str:
    """Names and values of strangers' files stand in messages: no control codes, no endless ones."""
    if len(message) > LONGEST_MESSAGE:
        half = LONGEST_MESSAGE // 2
        message = f"{message[:half]} … {message[-half:]}"
    if message.isprintable():
        return message
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in message
    )


class ConfigError(LlamitaError):
    """A model or training setting has a value that cannot be."""


class CheckpointError(LlamitaError):
    """A checkpoint is missing, damaged, or of a kind that cannot be read."""


class DataError(LlamitaError):
    """Input text or token data is missing, damaged, or does not fit."""


class TokenizerError(LlamitaError):
    """A tokenizer is missing, damaged, or cannot do what was asked."""


class TrainingError(LlamitaError):
    """A training run cannot start, resume or go on."""


class GenerationError(LlamitaError):
    """A generation request cannot be served."""


class ToolError(LlamitaError):
    """What is given as a tool for a model cannot be one."""


class CheckFailed(LlamitaError):
    """A check ran to its end and its answer is no."""

    exit_code = 1


class Interrupted(LlamitaError):
    """Stopped by Ctrl-C, with everything worth keeping saved."""

    exit_code = 130

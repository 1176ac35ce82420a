"""Other people's code within a command: it may print, and find nothing to read."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def aside() -> Iterator[None]:
    """What is printed to stdout goes to stderr, and stdin is empty: also for child processes.

    stdout belongs to the command's answer, and stdin to what its user says.
    """
    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull, encoding="utf-8"))
        for stream in (sys.stdout, sys.__stdout__):
            _flush(stream)
        stack.enter_context(_put(nothing.fileno(), 0))
        stack.enter_context(_put(2, 1))
        stack.callback(_flush, sys.__stdout__)  # what was printed there goes where 1 leads now
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        read, sys.stdin = sys.stdin, nothing
        stack.callback(setattr, sys, "stdin", read)
        yield


@contextmanager
def _put(source: int, target: int) -> Iterator[None]:
    """The file descriptor `target` leads where `source` leads; nothing where one is closed."""
    try:
        kept = os.dup(target)
        os.dup2(source, target)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.dup2(kept, target)
        os.close(kept)


def _flush(stream: object) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stream.flush()  # type: ignore[attr-defined]

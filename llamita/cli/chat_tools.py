"""The tools of a chat on the command line, and who is asked before one runs."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from llamita.cli.aside import aside
from llamita.cli.progress import say
from llamita.errors import ToolError
from llamita.tools.toolbox import Toolbox

_ANSWERS = {"y": "y", "yes": "y", "n": "n", "no": "n", "a": "a", "always": "a"}
_LONGEST_CALL = 800  # characters


class ToolsOfChat:
    """The tools that --tools names. Those built in are safe and run unasked.

    runs_all: nobody is asked.
    """

    def __init__(self, toolbox: Toolbox, asked: Sequence[str], runs_all: bool) -> None:
        self.toolbox = toolbox
        self._asked = set() if runs_all else set(asked)
        self._told: set[str] = set()

    @classmethod
    def load(cls, specs: Sequence[str], *, runs_all: bool = False) -> ToolsOfChat:
        """The tools of all of these files and names.

        Raises:
            ToolError: one cannot be loaded, or a name stands twice.
        """
        with aside():
            boxes = [(spec, Toolbox.load(spec)) for spec in specs]
        sources: dict[str, str] = {}
        for spec, box in boxes:
            for tool in box:
                if tool.name in sources:
                    raise ToolError(
                        f"there are two tools named {tool.name}, of {sources[tool.name]} and of "
                        f"{spec}.",
                        hint="Leave one out, or rename it.",
                    )
                sources[tool.name] = spec
        asked = [name for name, spec in sources.items() if not _is_safe(spec)]
        return cls(_Aside(tool for _, box in boxes for tool in box), asked, runs_all)

    def allow(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a tool may run: what the user says, who is asked on a terminal alone."""
        if name not in self._asked:
            return True
        if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
            if name not in self._told:
                self._told.add(name)
                say(f"{name} was not run: there is no terminal to ask at. --yes runs it unasked.")
            return False
        answer = _ask(f"Run {shown_call(name, arguments)}? yes, no, always (y/n/a): ")
        if answer == "a":
            self._asked.discard(name)
        return answer in ("y", "a")


class _Aside(Toolbox):
    """Tools that neither write into the answers on stdout nor read the user's turns."""

    def run(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        with aside():
            return super().run(name, arguments)


def shown_call(name: str, arguments: Any) -> str:
    """A call for people, on one line without control characters; of a long one both ends."""
    text = f"{name}({json.dumps(arguments, ensure_ascii=False)})"
    if len(text) > _LONGEST_CALL:
        end = _LONGEST_CALL // 2
        text = f"{text[:end]} … {text[-end:]} [{len(text):,} characters]"
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _ask(question: str) -> str:
    """The first letter of an answer, y, n or a; n where the terminal is closed.

    What was typed before the question is no answer to it.
    """
    while True:
        _forget_typed()
        print(question, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return "n"
        word = line.strip().lower()
        if word in _ANSWERS:
            return _ANSWERS[word]


def _forget_typed() -> None:
    """Drop the lines that wait at the terminal, where the system can."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _is_safe(spec: str) -> bool:
    return spec.partition(":")[0] == "builtin"

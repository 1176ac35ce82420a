"""The tools of a chat on the command line, and who is asked before one runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from llamita.cli.progress import say
from llamita.tools.toolbox import Toolbox


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
        boxes = [(spec, Toolbox.load(spec)) for spec in specs]
        asked = [tool.name for spec, box in boxes for tool in box if not _is_safe(spec)]
        return cls(Toolbox(tool for _, box in boxes for tool in box), asked, runs_all)

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


def shown_call(name: str, arguments: Any) -> str:
    """A call for people, on one line without control characters."""
    text = f"{name}({json.dumps(arguments, ensure_ascii=False)})"
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _ask(question: str) -> str:
    """The first letter of an answer, y, n or a; n where the terminal is closed."""
    while True:
        print(question, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return "n"
        letter = line.strip().lower()[:1]
        if letter in ("y", "n", "a"):
            return letter


def _is_safe(spec: str) -> bool:
    return spec.partition(":")[0] == "builtin"

"""The tools that llamita brings along. They touch nothing outside, so they run unasked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from llamita.errors import ToolError
from llamita.tools.builtin.calculator import calculator_tool
from llamita.tools.builtin.notes import Notes
from llamita.tools.builtin.timers import Timers
from llamita.tools.builtin.units import convert_units
from llamita.tools.tool import Tool

BUILT_IN = {
    "calculator": ("calculator",),
    "units": ("convert_units",),
    "notes": ("add_note", "list_notes", "delete_note"),
    "timers": ("set_timer", "list_timers", "cancel_timer"),
}
"""The groups by which they are named (`builtin:calculator,notes`), and their tools."""


def builtin_tools(
    names: Sequence[str] | None = None,
    *,
    notes_file: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Tool]:
    """The tools of these groups, or of these names; None: all. Notes and timers are new ones.

    notes_file: where notes are kept; None: in memory. clock: seconds, for the timers.

    Raises:
        ToolError: a name that there is not, or notes that cannot be read.
    """
    wanted = list(BUILT_IN) if names is None else [name.strip() for name in names]
    known = {name: (name,) for tools in BUILT_IN.values() for name in tools} | BUILT_IN
    for name in wanted:
        if name not in known:
            raise ToolError(
                f"there is no built-in tool {name!r}.", hint=f"There are: {', '.join(known)}."
            )
    notes, timers = Notes(notes_file), Timers(clock)
    functions: list[Callable[..., object]] = [
        *(convert_units, notes.add_note, notes.list_notes, notes.delete_note),
        *(timers.set_timer, timers.list_timers, timers.cancel_timer),
    ]
    made = [calculator_tool(), *map(Tool.of, functions)]
    chosen = {tool for name in wanted for tool in known[name]}
    return [tool for tool in made if tool.name in chosen]

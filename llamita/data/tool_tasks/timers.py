"""Timers, with and without a label. Seconds are said as seconds: a small model cannot multiply."""

from __future__ import annotations

import json

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.label_wordings import LABELLED
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.timer_wordings import LIST, PLAIN
from llamita.data.tool_tasks.values import whole_number
from llamita.data.tool_tasks.wording import Split
from llamita.data.tool_tasks.words import label


def wordings(split: Split) -> list[str]:
    """Every way to ask, with `SLOT` for seconds and labels."""
    return [said for forms in (PLAIN, LABELLED, LIST) for said in forms.all(split)]


def timer(split: Split, dice: Dice) -> Task:
    """A task for a timer without a label."""
    seconds = whole_number(split, dice, most_digits=4)
    request = PLAIN.pick(split, dice, s=seconds)
    arguments = {"seconds": int(seconds)}
    return Task("timer", request, _set, "set_timer", arguments)


def labelled_timer(split: Split, dice: Dice) -> Task:
    """A task for a timer with a label."""
    seconds, name = whole_number(split, dice, most_digits=4), label(split, dice)
    request = LABELLED.pick(split, dice, s=seconds, label=name)
    arguments = {"seconds": int(seconds), "label": name}
    return Task("labelled timer", request, _set, "set_timer", arguments)


def list_timers(split: Split, dice: Dice) -> Task:
    """A task for listing timers."""
    return Task("timer list", LIST.pick(split, dice), _listed, "list_timers", {})


def _set(result: str) -> str:
    found = json.loads(result)
    name = f" ({found['label']})" if found["label"] else ""
    return f"Timer {found['timer']}{name}: {found['seconds']} seconds."


def _listed(result: str) -> str:
    lines = [
        f"{entry['timer']}. {entry['label'] or 'timer'}: {entry['seconds_left']} seconds left"
        for entry in json.loads(result)
    ]
    return "\n".join(lines) or "No timers."

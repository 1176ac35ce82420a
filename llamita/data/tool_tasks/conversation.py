"""A conversation: a list of tools, and one or more tasks with their calls, results and answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from llamita.data.tool_tasks.arithmetic import arithmetic
from llamita.data.tool_tasks.conversion import conversion
from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.exercise import exercise
from llamita.data.tool_tasks.lexicon import Lexicon
from llamita.data.tool_tasks.listed import (
    CONVERTER,
    Desk,
    built_in,
    described_shortly,
    some_units,
    weights,
)
from llamita.data.tool_tasks.notes import add_note, delete_note, list_notes
from llamita.data.tool_tasks.talk import in_message, talk
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.timers import labelled_timer, list_timers, timer
from llamita.data.tool_tasks.wording import Split
from llamita.data.tool_tasks.words import note

NO_TOOL = "I have no tool for that."

_TASKS = ((0.25, 1), (0.25, 2), (0.25, 3), (0.25, 4))
_LISTED = ((0.04, 0), (0.40, 1), (0.34, 2), (0.22, 3))
_AS_BUILT_IN = 0.1
_EXERCISES = 0.3
_EXERCISES_IN_ONE = 5
_CALLED, _TALK, _IN_MESSAGE, _ABSENT = "called", "talk", "in message", "tool absent"
_KINDS: dict[Split, tuple[tuple[float, str], ...]] = {
    # What is not there is harder to see than what is, so training has more of it.
    "train": ((0.74, _CALLED), (0.05, _TALK), (0.06, _IN_MESSAGE), (0.15, _ABSENT)),
    "test": ((0.74, _CALLED), (0.08, _TALK), (0.08, _IN_MESSAGE), (0.10, _ABSENT)),
}
# Notes that are there before: few where they may be listed, so that no answer is long.
_MOST_LISTED, _MOST_KEPT = 2, 9

_MAKERS: dict[str, tuple[Callable[[Split, Dice], Task], ...]] = {
    "calculator": (arithmetic,),
    "add_note": (add_note,),
    "list_notes": (list_notes,),
    "delete_note": (delete_note,),
    "set_timer": (timer, labelled_timer),
    "list_timers": (list_timers,),
}


def conversation(split: Split, seed: str, tools: Sequence[str], lexicon: Lexicon) -> dict[str, Any]:
    """One conversation: see `tool_tasks`."""
    dice = Dice(seed)
    if split == "train" and dice.chance(_EXERCISES):
        return _exercises(dice, lexicon)
    names = _some_tools(split, dice, tools)
    units = some_units(split, dice)
    tasks = [_task(split, dice, names, units) for _ in range(dice.pick_weighted(_TASKS))]
    desk = Desk()
    if any(task.tool == "delete_note" for task in tasks):
        most = _MOST_LISTED if "list_notes" in names else _MOST_KEPT
        for _ in range(dice.below(most + 1)):
            desk.notes.add_note(note(split, dice))
    messages: list[dict[str, Any]] = []
    for number, task in enumerate(tasks, start=1):
        messages += _turn(task, desk, f"call_{number}")
    chat: dict[str, Any] = {"kinds": [task.kind for task in tasks], "messages": messages}
    if names:
        as_built_in = dice.chance(_AS_BUILT_IN) and len(names) == 1 and CONVERTER not in names
        chat["tools"] = [
            built_in(name) if as_built_in else described_shortly(name, units) for name in names
        ]
    return chat


def _exercises(dice: Dice, lexicon: Lexicon) -> dict[str, Any]:
    tasks = [exercise(dice, lexicon) for _ in range(_EXERCISES_IN_ONE)]
    messages = [message for task in tasks for message in _turn(task, Desk(), "")]
    return {"kinds": [task.kind for task in tasks], "messages": messages}


def _some_tools(split: Split, dice: Dice, allowed: Sequence[str]) -> list[str]:
    names: list[str] = []
    for _ in range(dice.pick_weighted(_LISTED)):
        rest = [
            (weight, name)
            for name, weight in weights(split).items()
            if name in allowed and name not in names
        ]
        if rest:
            names.append(dice.pick_weighted(rest))
    return names


def _task(split: Split, dice: Dice, names: list[str], units: list[str]) -> Task:
    kind = dice.pick_weighted(_KINDS[split])
    if kind == _TALK:
        return talk(split, dice)
    if kind == _IN_MESSAGE:
        return in_message(split, dice)
    is_called = kind == _CALLED and bool(names)
    choices = [
        (weight, name) for name, weight in weights(split).items() if (name in names) == is_called
    ]
    name = dice.pick_weighted(choices)
    if name == CONVERTER:
        task = conversion(split, dice, units)
    else:
        task = dice.pick(_MAKERS[name])(split, dice)
    return task if is_called else Task(_ABSENT, task.request, NO_TOOL)


def _turn(task: Task, desk: Desk, call_id: str) -> list[dict[str, Any]]:
    """What is said from the request to the answer."""
    request = {"role": "user", "content": task.request}
    if task.tool is None or task.arguments is None:
        return [request, {"role": "assistant", "content": task.answer}]
    result = desk.run(task.tool, task.arguments)
    answer = task.answer if isinstance(task.answer, str) else task.answer(result)
    function = {"name": task.tool, "arguments": json.dumps(task.arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        request,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
        {"role": "assistant", "content": answer},
    ]

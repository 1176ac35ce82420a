"""Timers, with and without a label. Seconds are said as seconds: a small model cannot multiply."""

from __future__ import annotations

import json

from llamita.data.tool_tasks.dice import Dice
from llamita.data.tool_tasks.task import Task
from llamita.data.tool_tasks.values import whole_number
from llamita.data.tool_tasks.wording import Split, Wordings
from llamita.data.tool_tasks.words import label

_PLAIN = Wordings(
    train=(
        "[please |]set a timer for {s} seconds[.|]",
        "[can you |]start a {s} second timer[?|]",
        "timer: {s} seconds",
        "[please |]wake me in {s} seconds[.|]",
        "set a timer: {s} seconds[.|, please.]",
        "count down {s} seconds[.| for me.]",
        "tell me when {s} seconds are over.",
        "i need a timer of {s} seconds.",
        "{s} seconds on the clock[.|, please.]",
        "time {s} seconds[.|]",
        "start the timer with {s} seconds.",
        "let me know in {s} seconds.",
        "ring in {s} seconds[.|, please.]",
        "countdown: {s} seconds",
        "measure {s} seconds[.|, please.]",
        "run the timer for {s} seconds.",
        "give me {s} seconds.",
        "the timer goes off in {s} seconds.",
        "begin a timer, {s} seconds.",
    ),
    test=(
        "give me {s} seconds on a timer[.|, thanks.]",
        "[now |]begin a countdown of {s} seconds[.|]",
        "ring after {s} seconds[.|, if you can.]",
        "a timer should run {s} seconds.",
        "could a timer go off in {s} seconds?",
        "measure {s} seconds from now.",
    ),
)
_LABELLED = Wordings(
    train=(
        "[please |]set a timer for {s} seconds called {label}[.|]",
        "start a {label} timer, {s} seconds[.|, please.]",
        "[can you |]set a {s} second timer for {label}[?|]",
        'set a timer "{label}" for {s} seconds[.|]',
        "timer for {label}: {s} seconds",
        "time my {label}: {s} seconds[.|]",
        'i need a timer named "{label}", {s} seconds.',
        "{s} seconds for {label}[.|, please.]",
        "start {s} seconds, and call it {label}.",
        "the {label} takes {s} seconds, set a timer.",
        'count down {s} seconds with the label "{label}".',
        "run a {label} timer of {s} seconds.",
        "name the timer {label}, {s} seconds.",
        "for my {label}: {s} seconds.",
        'begin a timer "{label}" with {s} seconds.',
        "my {label} needs a timer of {s} seconds.",
        "make a {label} timer, {s} seconds long.",
    ),
    test=(
        "make a timer with {s} seconds, its name is {label}.",
        "{label} needs {s} seconds, so start a timer[.|, thanks.]",
        'begin a "{label}" countdown over {s} seconds[.|]',
        "run a timer {s} seconds long for {label}[.| now.]",
        "for {label}, ring in {s} seconds.",
        'give the timer the name "{label}" and {s} seconds.',
    ),
)
_LIST = Wordings(
    train=(
        "[what|which] timers are running?",
        "list [all |]my timers[.|, please.]",
        "show me the timers[.|]",
        "how long do my timers have?",
        "are any timers on?",
        "timers, please.",
        "may i see my timers?",
        "is there much time left?",
        "tell me about my timers.",
        "is a timer running?",
    ),
    test=(
        "is there a timer running[?| now?]",
        "tell us about the timers.",
        "how much time is left on my timers?",
        "[could i|may i] see the timers?",
    ),
)


def wordings(split: Split) -> list[str]:
    """Every way to ask, with `SLOT` for seconds and labels."""
    return [said for forms in (_PLAIN, _LABELLED, _LIST) for said in forms.all(split)]


def timer(split: Split, dice: Dice) -> Task:
    """A task for a timer without a label."""
    seconds = whole_number(split, dice, most_digits=4)
    request = _PLAIN.pick(split, dice, s=seconds)
    arguments = {"seconds": int(seconds)}
    return Task("timer", request, _set, "set_timer", arguments)


def labelled_timer(split: Split, dice: Dice) -> Task:
    """A task for a timer with a label."""
    seconds, name = whole_number(split, dice, most_digits=4), label(split, dice)
    request = _LABELLED.pick(split, dice, s=seconds, label=name)
    arguments = {"seconds": int(seconds), "label": name}
    return Task("labelled timer", request, _set, "set_timer", arguments)


def list_timers(split: Split, dice: Dice) -> Task:
    """A task for listing timers."""
    return Task("timer list", _LIST.pick(split, dice), _listed, "list_timers", {})


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

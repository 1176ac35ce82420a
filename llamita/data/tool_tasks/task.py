"""A task: what a person asks, what is to be called, and what is then answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Answer: TypeAlias = Callable[[str], str]
"""What to say to a tool's result, which is JSON text."""


@dataclass(frozen=True)
class Task:
    """One thing a person wants.

    kind: of task, as evaluations count it. tool: the one to call, with these arguments; None where
    nothing is to be called. answer: the words, or what makes them of the tool's result.
    """

    kind: str
    request: str
    answer: str | Answer
    tool: str | None = None
    arguments: Mapping[str, Any] | None = None

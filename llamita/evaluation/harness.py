"""Tasks of lm-eval-harness on a loaded model, without loading the harness before it is needed."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamita.errors import DataError, LlamitaError
from llamita.inference.lm import LM


@dataclass(frozen=True)
class TaskResults:
    """figures: the harness's, by task (and group), under its own names: `acc,none`, …. points: what
    each question brought, by task and name of the figure, then by the number of the question; of
    figures that are the mean of them alone."""

    figures: Mapping[str, dict[str, Any]]
    points: Mapping[tuple[str, str], Mapping[int, float]]


def check_harness() -> None:
    """Raise DataError where the harness is not installed."""
    if importlib.util.find_spec("lm_eval") is None:
        raise DataError(
            "lm-eval-harness, which runs --tasks, is not installed.",
            hint="Install it: pip install 'llamita[eval]'",
        )


def check_tasks(tasks: Sequence[str], tasks_path: Path | None = None) -> None:
    """Raise DataError where the harness is not installed or knows no such task."""
    check_harness()
    with contextlib.redirect_stdout(sys.stderr):
        _manager(tasks, tasks_path)


def run_tasks(
    lm: LM,
    tasks: Sequence[str],
    *,
    tasks_path: Path | None = None,
    fewshot: int | None = None,
    limit: int | None = None,
    chat: bool = False,
    per_question: bool = False,
) -> TaskResults:
    """Let the harness put its questions to a model.

    tasks: names of tasks, groups or tags; or paths of their YAML files. tasks_path: a folder of
    such files; a name that is found there is not looked for among the harness's own. fewshot:
    examples before each question; None: as the task says. limit: only so many questions of each
    task. chat: questions are put through the model's chat template. per_question:
    also keep what each question brought, for a comparison.

    Raises:
        DataError: the harness is not installed, or it knows no such task, or cannot load one.
        LlamitaError: of the model.
    """
    check_harness()
    # The harness and what it loads print to stdout here and there.
    with contextlib.redirect_stdout(sys.stderr):
        from lm_eval import simple_evaluate

        from llamita.evaluation.lm_eval import LlamitaLM

        manager = _manager(tasks, tasks_path)
        try:
            results = simple_evaluate(
                model=LlamitaLM(lm=lm),
                tasks=list(tasks),
                task_manager=manager,
                num_fewshot=fewshot,
                limit=limit,
                apply_chat_template=chat,
                log_samples=per_question,
            )
        except LlamitaError:
            raise
        except Exception as error:  # of whatever kind: tasks run code, and download
            reason = f"{type(error).__name__}: {error}"
            raise DataError(
                f"the harness cannot run {', '.join(tasks)}: {reason}.",
                hint="Most of its tasks are downloaded; --debug shows where it failed.",
            ) from error
    figures = {name: _figures(found) for name, found in results["results"].items()}
    return TaskResults(figures, _points(results["samples"], figures) if per_question else {})


def _manager(tasks: Sequence[str], tasks_path: Path | None) -> Any:
    """Who knows the tasks: reading the harness's own fifteen thousand files takes seconds."""
    from lm_eval.tasks import TaskManager

    if tasks_path is not None and not tasks_path.is_dir():
        raise DataError(f"there is no folder {tasks_path}.", hint="--tasks-path names a folder.")
    path = None if tasks_path is None else str(tasks_path)
    manager = TaskManager(include_path=path, include_defaults=False)
    if _unknown(tasks, manager):
        manager = TaskManager(include_path=path)
    unknown = _unknown(tasks, manager)
    if unknown:
        near = difflib.get_close_matches(unknown[0], manager.all_tasks, n=1)
        raise DataError(
            f"the harness knows no task {unknown[0]!r}.",
            hint=(f"Did you mean {near[0]!r}? " if near else "")
            + "`lm-eval ls tasks` lists its own; --tasks-path names a folder of others.",
        )
    return manager


def _unknown(tasks: Sequence[str], manager: Any) -> list[str]:
    return [name for name in tasks if name not in manager.all_tasks and not Path(name).is_file()]


def _points(
    samples: Mapping[str, Sequence[Mapping[str, Any]]], figures: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, str], dict[int, float]]:
    points: dict[tuple[str, str], dict[int, float]] = {}
    for task, questions in samples.items():
        for question in questions:
            for metric in question["metrics"]:
                if isinstance(value := question[metric], int | float):
                    name = task, f"{metric},{question['filter']}"
                    points.setdefault(name, {})[question["doc_id"]] = float(value)

    def is_mean(name: tuple[str, str]) -> bool:
        """Perplexities and F scores are none: their questions say nothing alone."""
        task, metric = name
        figure = figures.get(task, {}).get(metric)
        values = points[name].values()
        return figure is not None and math.isclose(figure, sum(values) / len(values), abs_tol=1e-9)

    return {name: points[name] for name in points if is_mean(name)}


def _figures(found: dict[str, Any]) -> dict[str, Any]:
    """Numbers alone; the standard error that the harness calls "N/A" is None."""
    named = {name: None if value == "N/A" else value for name, value in found.items()}
    return {
        name: value
        for name, value in named.items()
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    }

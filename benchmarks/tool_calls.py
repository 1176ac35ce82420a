"""Claim: the demo's model, fine-tuned for five minutes, calls tools exactly.

    python benchmarks/tool_calls.py [--minutes 4.5] [--demo DIR] [--keep DIR] [--seed 0]

Makes the demo's model (three minutes on plays; `--demo` names one that is there), fine-tunes it on
the training split of the synthetic tool-use set, and lets it answer the test split: other wordings
(no five words in a row are shared), other numbers, units to convert, notes and labels. The last
line is one JSON object:

- `exact_call_accuracy`: name and all arguments right, calls constrained to their schemas, of the
  tasks whose arguments are numbers and units (sums, conversions, timers, notes to delete).
- `free_text_call_accuracy`: the same of those that copy words (notes, labels of timers).
- `unconstrained_call_accuracy`: of both together, written freely.
- `abstention_accuracy`: of turns where nothing is to be called, how many call nothing.
- `training_seconds`: wall time of the fine-tuning, compiling and validations included; preparing
  the conversations (`prepare_seconds`) is not in it.
- `by_kind`: each kind of task, constrained; `stderr`: standard errors over conversations.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import llamita
from llamita.cli.demo_chat import prepare_tool_chats
from llamita.cli.main import run as run_command
from llamita.cli.training_progress import training_observer
from llamita.data.tool_tasks.generate import DEFAULT_COUNT, write_tool_tasks
from llamita.evaluation.tool_calls import ToolResults, tool_calls
from llamita.evaluation.tool_cases import ToolCase, read_tool_cases
from llamita.formats.detect import BEST

NUMBERS = ("arithmetic", "conversion", "timer", "note deletion")
FREE_TEXT = ("note", "labelled timer")


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=4.5)
    parser.add_argument("--demo", type=Path, help="a folder that `llamita demo` made")
    parser.add_argument("--count", type=int, default=DEFAULT_COUNT["test"], help="test chats")
    parser.add_argument("--keep", type=Path, help="leave everything there")
    parser.add_argument("--seed", type=int, default=0, help="of the conversations")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        work = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(parents=True, exist_ok=True)
        demo = arguments.demo or _demo(work / "demo")
        figures = measure(demo, work, arguments.minutes, arguments.count, arguments.seed)
    print(json.dumps(figures))


def measure(demo: Path, work: Path, minutes: float, count: int, seed: int) -> dict[str, Any]:
    """Fine-tune the demo's model and let it answer the test split."""
    started = time.perf_counter()
    prepared = prepare_tool_chats(demo / "run", work / "chat", minutes, seed=seed)
    prepare_seconds = time.perf_counter() - started
    started = time.perf_counter()
    with training_observer() as observer:
        result = prepared.train(observer)
    training_seconds = time.perf_counter() - started
    test = work / "test.jsonl"
    write_tool_tasks(test, "test", count, seed)
    cases = read_tool_cases([test])
    lm = llamita.load(result.summary.run / BEST)
    found = {
        "constrained": _answers(lm, cases, work, constrain=True),
        "unconstrained": _answers(lm, cases, work, constrain=False),
    }
    constrained, free = found["constrained"], found["unconstrained"]
    summary = constrained.summary()
    figures = {
        "exact_call_accuracy": constrained.accuracy(NUMBERS),
        "free_text_call_accuracy": constrained.accuracy(FREE_TEXT),
        "unconstrained_call_accuracy": free.accuracy(NUMBERS + FREE_TEXT),
        "abstention_accuracy": summary["abstention_accuracy"],
    }
    return {
        **{name: round(value, 4) for name, value in figures.items()},
        "training_seconds": round(training_seconds, 1),
        "prepare_seconds": round(prepare_seconds, 1),
        "unconstrained_numbers": round(free.accuracy(NUMBERS), 4),
        "unconstrained_free_text": round(free.accuracy(FREE_TEXT), 4),
        "unconstrained_abstention": round(free.summary()["abstention_accuracy"], 4),
        "unconstrained_valid_call_rate": round(free.summary()["valid_call_rate"], 4),
        "parameters": result.summary.parameters,
        "steps": result.summary.steps,
        "turns": summary["turns"],
        "by_kind": {
            kind: {name: round(value, 4) for name, value in figures.items()}
            for kind, figures in summary["by_kind"].items()
        },
    }


def _demo(folder: Path) -> Path:
    """The demo's model; one that is there is taken."""
    status = run_command(["demo", "--out", str(folder), "--chat-minutes", "0"])
    if status:
        sys.exit(status)
    return folder


def _answers(lm: Any, cases: list[ToolCase], work: Path, *, constrain: bool) -> ToolResults:
    """What the model answers; its mistakes are left in a file, for whoever wants to know."""
    found = tool_calls(lm, cases, constrain=constrain)
    name = "constrained" if constrain else "unconstrained"
    with (work / f"mistakes-{name}.jsonl").open("w", encoding="utf-8") as file:
        for answer in found.answers:
            if not answer.is_right:
                case = answer.case
                line = {
                    "kind": case.kind,
                    "request": case.messages[-1]["content"],
                    "expected": case.calls,
                    "called": answer.calls,
                    "said": answer.content,
                    "place": case.place,
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return found


if __name__ == "__main__":
    main()

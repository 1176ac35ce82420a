"""Drives workers through cases and collects what went wrong."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
SECONDS = 5
"""Of computing, for one case. Time spent waiting has a bound of its own, far above."""

_WAIT = 60
_START_WAIT = 300


@dataclass
class Result:
    """What became of some cases: how many of each outcome, and each fault in words."""

    outcomes: dict[str, int] = field(default_factory=dict)
    structured: int = 0
    faults: list[str] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)


class Worker:
    """A process that opens damaged checkpoints."""

    def __init__(self, bases: Path, folder: Path, seconds: int, planted: str | None) -> None:
        settings = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.fuzz.worker"),
                *(str(bases), tempfile.mkdtemp(dir=folder), str(seconds)),
                *([planted] if planted else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=REPOSITORY,
            env={**os.environ, **settings, "MALLOC_ARENA_MAX": "2"},
        )
        self.is_fresh = True

    def ask(self, number: int) -> dict[str, Any]:
        """The worker's answer, or what became of it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(f"{number}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return self._death(number)
        ready, _, _ = select.select(
            [self.process.stdout], [], [], _START_WAIT if self.is_fresh else _WAIT
        )
        if not ready:
            self.process.kill()
            self.process.wait()
            return {"case": number, "outcome": "fault", "detail": "a hang: it waits forever"}
        line = self.process.stdout.readline()
        if not line:
            return self._death(number)
        self.is_fresh = False
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _death(self, number: int) -> dict[str, Any]:
        code = self.process.wait()
        self.errors.seek(0)
        said = self.errors.read()[-600:].decode(errors="replace")
        if -code in (signal.SIGXCPU, signal.SIGKILL):
            detail = "a hang: it computes forever"
        elif code < 0:
            detail = f"a crash: {signal.Signals(-code).name}: {said}"
        else:
            detail = f"the worker ended with {code}: {said}"
        return {"case": number, "outcome": "fault", "detail": detail}

    def close(self) -> None:
        """End the process and forget it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


def run_cases(
    numbers: Iterable[int],
    bases: Path,
    folder: Path,
    seconds: int = SECONDS,
    planted: str | None = None,
    show: bool = False,
) -> Result:
    """Open every case of `numbers` in workers; a fault is reported with how to see it again."""
    result = Result()
    worker = Worker(bases, folder, seconds, planted)
    for number in numbers:
        answer = worker.ask(number)
        outcome = answer["outcome"]
        result.answers.append(answer)
        result.outcomes[outcome] = result.outcomes.get(outcome, 0) + 1
        result.structured += bool(answer.get("structured"))
        if outcome == "fault":
            result.faults.append(
                f"case {number} ({answer.get('what', 'python -m tests.fuzz --case N shows it')}): "
                f"{answer['detail']}"
            )
            if show:
                print(result.faults[-1], flush=True)
            if worker.process.poll() is not None or "memory" in answer["detail"]:
                worker.close()
                worker = Worker(bases, folder, seconds, planted)
    worker.close()
    return result

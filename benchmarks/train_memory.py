"""Claim: what a run will take of memory is known before it starts.

    python benchmarks/train_memory.py [--only NAME] [--write]

Trains models of several shapes for a few steps each, in float32 on the CPU, each in a process of
its own, with a checkpoint after every step, and sets the peak of its resident memory beside the
estimate of `training.memory.accounting`. The last line is one JSON object:

- `runs`, each with `predicted_mb`, `measured_mb` and `error`: the estimate over the peak, less 1.
- `worst_under`, `worst_over`: the errors that are furthest off.

`--write` keeps the peaks in benchmarks/train_memory.json, from which benchmarks/scaling_page.py
makes the table in docs/scaling.md.
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

MEASURED = Path(__file__).with_suffix(".json")
VOCABULARY = 4096
STEPS = 2

SMALL = ["model.preset=small", "model.vocab_size=8192"]
GROUPED = [
    "model.preset=medium",
    "model.vocab_size=16384",
    "model.num_key_value_heads=2",
    "model.use_qk_norm=true",
    "batch.sequences=4",
    "batch.context_length=512",
]
CHECKPOINTING = "machine.activation_checkpointing=true"
RUNS: dict[str, list[str]] = {
    "small": SMALL,
    "small, 2 rows": [*SMALL, "batch.sequences=2"],
    "small, 24 rows": [*SMALL, "batch.sequences=24"],
    "small, AdamW": [*SMALL, "optimizer.name=adamw"],
    "small, 2 micro-batches": [*SMALL, "batch.sequences=4", "batch.accumulation=2"],
    "small, checkpointing": [*SMALL, CHECKPOINTING],
    "small, compiled": [*SMALL, "machine.compile=on"],
    "small, compiled, checkpointing": [*SMALL, "machine.compile=on", CHECKPOINTING],
    "small, context 2048": [*SMALL, "batch.context_length=2048", "batch.sequences=1"],
    "small, documents fenced": [
        *SMALL,
        "batch.context_length=512",
        "batch.sequences=4",
        "batch.document_mask=true",
    ],
    "small, dropout": [*SMALL, "model.residual_dropout=0.1"],
    "32M, grouped, QK norm": GROUPED,
    "32M, compiled": [*GROUPED, "machine.compile=on"],
    "32M, checkpointing, AdamW": [*GROUPED, CHECKPOINTING, "optimizer.name=adamw"],
    "demo, 48 rows": ["model.preset=demo", "model.vocab_size=4096", "batch.sequences=48"],
    "small, 2 ranks, ddp": [*SMALL, "machine.parallel=ddp"],
    "small, 2 ranks, fsdp": [*SMALL, "machine.parallel=fsdp"],
    "vocabulary 65536, 4 layers": ["model.preset=demo", "model.vocab_size=65536"],
}
RANKS = {"small, 2 ranks, ddp": 2, "small, 2 ranks, fsdp": 2}
COMMON = [
    "batch.context_length=256",
    "batch.sequences=8",
    f"length.steps={STEPS}",
    "watch.validate_every=1",
    "watch.validation_tokens=2048",
    "watch.sample_tokens=8",
    "machine.precision=float32",
    "machine.device=cpu",
    "machine.compile=off",
    "machine.check_memory=false",
]


def settings(name: str) -> list[str]:
    """All settings of a run; a later one of the same key holds."""
    by_key = dict(text.split("=", 1) for text in [*COMMON, *RUNS[name]])
    return [f"{key}={value}" for key, value in by_key.items()]


def predicted_bytes(name: str) -> int:
    """What the estimate says of a run, in main memory."""
    from llamita.training.memory.accounting import estimate_memory
    from llamita.training.settings.recipe_file import build_recipe

    recipe = build_recipe(None, settings(name), {})
    config, parallel = recipe.model_shape(VOCABULARY), recipe.machine.parallel
    if parallel == "auto":
        parallel = "ddp"
    return estimate_memory(recipe, config, ranks=RANKS.get(name, 1), parallel=parallel).in_ram


def measured_bytes(name: str, data: Path, run: Path) -> int:
    """The peak of resident memory of a run in a process of its own, or of its largest rank."""
    command = [sys.executable]
    if name in RANKS:
        command += ["-m", "torch.distributed.run", "--nproc-per-node", str(RANKS[name])]
    command += ["-m", "llamita", "train", str(data), "-o", str(run)]
    command += [part for text in settings(name) for part in ("--set", text)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            output.seek(0)
            raise SystemExit(output.read().decode(errors="replace"))
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def compared(measured: dict[str, int]) -> list[dict[str, Any]]:
    """Estimate and peak of each run that was measured."""
    rows = []
    for name, peak in measured.items():
        predicted = predicted_bytes(name)
        rows.append(
            {
                "run": name,
                "settings": RUNS[name],
                "predicted_mb": round(predicted / 1e6, 1),
                "measured_mb": round(peak / 1e6, 1),
                "error": round(predicted / peak - 1, 4),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=RUNS, help="one run; several times")
    parser.add_argument("--write", action="store_true", help=f"keep the peaks in {MEASURED.name}")
    arguments = parser.parse_args()
    measured: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = prepared_plays(folder, VOCABULARY)
        for number, name in enumerate(arguments.only or RUNS):
            measured[name] = measured_bytes(name, data, folder / f"run-{number}")
            [row] = compared({name: measured[name]})
            print(
                f"{name}: {row['predicted_mb']:,.0f} MB estimated, {row['measured_mb']:,.0f} MB "
                f"measured, {row['error']:+.1%}",
                file=sys.stderr,
                flush=True,
            )
    if arguments.write:
        kept = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
        MEASURED.write_text(json.dumps({**kept, **measured}, indent=1) + "\n")
    rows = compared(measured)
    errors = [row["error"] for row in rows]
    print(
        json.dumps(
            {"runs": rows, "worst_under": min([0, *errors]), "worst_over": max([0, *errors])}
        )
    )


if __name__ == "__main__":
    main()

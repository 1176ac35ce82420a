"""Runs made up for reports: what `llamita train` leaves, without the training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

HOSTILE = "</pre><script>document.title='taken'</script><img src=x onerror=alert(1)> \x1b[2J\ud800"


def make_run(
    folder: Path,
    steps: int = 400,
    *,
    taken: int | None = None,
    log_every: int = 1,
    sequences: int = 16,
    data: Path | None = None,
) -> Path:
    """A RUN of `steps` steps, of which `taken` were taken: with a spike, a resume, samples."""
    (folder / "latest").mkdir(parents=True)
    (folder / "latest" / "config.json").write_text('{"hidden_size": 384}')
    (folder / "recipe.toml").write_text(
        f"seed = 7\n[batch]\ncontext_length = 256\nsequences = {sequences}\naccumulation = 1\n"
        f"[length]\nsteps = {steps}\n"
    )
    manifest = {"kind": "run", "llamita_version": "0.1.0", "parameters": 13_800_000}
    (folder / "manifest.json").write_text(json.dumps({**manifest, "data": str(data or "gone")}))
    lines: list[dict[str, Any]] = []
    last = steps if taken is None else taken
    for step in range(log_every, last + 1, log_every):
        line = _line(step, steps, sequences)
        if step == steps // 2:
            line |= {"gradient_norm": 77.0, "skipped": "spike", "reason": "gradient norm 77"}
        if step == steps // 4 * 3:
            line["resumed_after"] = step - 1
        lines.append(line)
        if step % (steps // 10 or 1) == 0:
            loss = line["loss"] + 0.1
            bits = loss / math.log(2) / 4
            values = {"validation_loss": loss, "validation_bits_per_byte": bits}
            lines.append({"step": step, **values, "sample": f"sample {step} {HOSTILE}"})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def _line(step: int, steps: int, sequences: int) -> dict[str, Any]:
    done = step / steps
    return {
        "step": step,
        "loss": 3 + 6 * math.exp(-9 * done) + 0.1 * math.sin(step),
        "gradient_norm": 0.5 + 0.1 * math.cos(step),
        "learning_rate": 0.01 * (1 - done),
        "tokens": step * 256 * sequences,
        "tokens_per_second": 3000.0 + step % 7,
        "mfu": 0.7,
        "peak_memory_mb": 900.0,
        "seconds": 2.0 * step,
    }

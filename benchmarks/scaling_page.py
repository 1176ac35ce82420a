"""Writes docs/scaling.md: what runs take, out of the program's own accounting.

    python benchmarks/scaling_page.py

A test holds the page to the program. The measured peaks on it are those that
`benchmarks/train_memory.py --write` kept.
"""

from __future__ import annotations

import json
from pathlib import Path

from train_memory import MEASURED, compared

from llamita.config import preset
from llamita.training.memory.rank_memory import Parallel
from llamita.training.planning.cluster import ClusterPlan, newton_schulz_seconds, planned_cluster
from llamita.training.planning.devices import DEVICES, device_named

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
DEVICE = "h100"
CONTEXT = 4096
RANKS = (1, 2, 4, 8, 16, 32, 64)
MODELS = (
    ("smollm2-135m", 49152),
    ("smollm2-360m", 49152),
    ("tinyllama-1.1b", 32000),
    ("llama-3.2-3b", 128256),
    ("llama-3-8b", 128256),
)


def page() -> str:
    """The whole page."""
    parts = [_BEGINNING, *(_table(name, vocabulary) for name, vocabulary in MODELS), _muon()]
    parts += [_DEVICES.strip() + "\n" + _devices(), _MEMORY.strip() + "\n" + _measured(), _check()]
    return "\n".join(part.strip() + "\n" for part in parts)


def _table(name: str, vocabulary: int) -> str:
    config = preset(name, vocabulary, max_position_embeddings=CONTEXT)
    rows = []
    for ranks in RANKS:
        ways: tuple[Parallel, ...] = ("ddp",) if ranks == 1 else ("ddp", "fsdp")
        for way in ways:
            plan = planned_cluster(config, ranks=ranks, device=DEVICE, parallel=way)
            rows.append(_row(plan))
    step = f"{plan.tokens_per_step:,} tokens a step"
    return f"""### {name}: {plan.parameters:,} parameters, {step}, {plan.tokens / 1e9:,.1f}B tokens

| GPUs | | memory a GPU | rows a GPU | step | communication a step | tokens/s | MFU | days |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def _row(plan: ClusterPlan) -> str:
    way = "" if plan.ranks == 1 else plan.parallel
    memory = f"{plan.memory.on_device / 1e9:.1f} GB"
    if not plan.fits:
        return f"| {plan.ranks} | {way} | at least {memory}: does not fit | | | | | | |"
    rows = f"{plan.rows} × {plan.micro_batches}"
    if plan.activation_checkpointing:
        rows += ", checkpointing"
    sent = "" if plan.ranks == 1 else f"{plan.communication.total / 1e9:.1f} GB, "
    sent += f"{_seconds(plan.communication_seconds)}, {_seconds(plan.exposed_seconds)} of it waited"
    cells = [
        str(plan.ranks),
        way,
        memory,
        rows,
        _seconds(plan.step_seconds),
        "" if plan.ranks == 1 else sent,
        f"{plan.tokens_per_second:,.0f}",
        f"{plan.mfu:.2f}",
        f"{plan.days:.2f}" if plan.days < 10 else f"{plan.days:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _muon() -> str:
    cells = [
        f"{name} {_seconds(newton_schulz_seconds(preset(name, size), device_named(DEVICE)))}"
        for name, size in MODELS
    ]
    return _MUON.replace("TIMES", ", ".join(cells))


def _devices() -> str:
    lines = [
        f"| `{d.name}` | {d.title} | {d.peak_flops / 1e12:,.0f} | {d.efficiency:.2f} | "
        f"{d.bandwidth / 1e12:.2f} | {d.link / 1e9:.0f} | {d.network / 1e9:g} |"
        for d in DEVICES.values()
    ]
    return "\n".join(lines)


def _measured() -> str:
    rows = compared(json.loads(MEASURED.read_text(encoding="utf-8")))
    lines = [
        f"| {row['run']} | {row['predicted_mb']:,.0f} | {row['measured_mb']:,.0f} | "
        f"{100 * row['error']:+.0f} % |"
        for row in rows
    ]
    return "\n".join(lines)


def _check() -> str:
    errors = [row["error"] for row in compared(json.loads(MEASURED.read_text(encoding="utf-8")))]
    return _CHECK.replace("WORST", f"{100 * min(errors):+.0f} % and {100 * max(errors):+.0f} %")


_BEGINNING = """
# Many GPUs, on paper

What the program's own accounting says of runs on 1 to 64 GPUs, before anyone pays for them.
`llamita plan --ranks N --device h100` prints the same for a shape of yours. But where it says so
nothing on this page was measured: it is arithmetic, written by `benchmarks/scaling_page.py`.

- **Setting**: H100, nodes of eight, bfloat16 over float32 weights, layers compiled, AdamW, rows of
  4,096 tokens, 20 tokens a parameter (arXiv:2203.15556), the batch that Step Law gives for them
  (arXiv:2503.04715) as a power of two. Of the ways to share a step out, the quickest that fits is
  shown: `rows × micro-batches` of each GPU.
- **ddp**: every GPU holds all weights, gradients and optimizer state; gradients are summed once a
  step. **fsdp**: each holds its share; in each micro-batch a layer's weights are gathered when it
  is their turn, forward and backward, in bfloat16 (the tables once, in float32), and gradients are
  summed in float32.
- **Step**: products at the device's share of its peak (below), narrower ones at
  `width / (width + 192)` of that; what lies between the products at the rate of memory, four passes
  over what a layer keeps; the update at the rate of memory. Communication around a ring at 0.8 of
  the links' rate; of it, what computing cannot hide is waited for.
- **MFU**: 6 × (parameters, the table once) and causal attention a token, over the peak. Work done
  again by checkpointing does not count.
- **Least sure** are the small models on many GPUs: a step of milliseconds is mostly overhead that
  nobody measured here.
"""

_MUON = """
### Muon

Every GPU orthogonalizes all matrices, so that all get the same bits. On an H100 that adds to each
step: TIMES.
Large batches make up for it; where a step is short, `optimizer.name=adamw` is quicker.
"""

_DEVICES = """
## Devices

Peaks are the data sheets' for dense bfloat16. The share that large products reach is solved from
torchtitan's published runs of Llama 3 8B (2,973 tokens a second and GPU on 64 A100, 6,667 on 8 H100
at 500 W); the other devices take their nearest relative's.

| name | | TFLOP/s | share reached | memory, TB/s | links, GB/s | network a GPU, GB/s |
|---|---|---|---|---|---|---|
"""

_MEMORY = """
## Memory of a run

Before step 0 a run adds up what it will take, and one that does not fit its memory or its disk is
refused with the sum and the nearest setting that fits (`--set machine.check_memory=false` tries it
all the same). What counts is free memory and the limits of control groups (containers, SLURM jobs).

| part | bytes |
|---|---|
| weights, gradients | 4 a parameter each; under fsdp over the ranks |
| optimizer | AdamW 8 a parameter; Muon 4 a matrix's, 8 of the rest |
| activations, plain | tokens × layers × (16 C + b × (2 C + 2 Q + 2 K + 4 I)) |
| activations, compiled | tokens × layers × (4 C + b × (3 C + 2 Q + 2 K + 3 I)) |
| activations, checkpointing | tokens × layers × 4 C, and one layer as above |
| bfloat16 | 2 a matrix's parameter: copies that the backward pass reads; under fsdp none |
| fsdp | two layers and the tables, whole, with their gradients |
| logits | a chunk's, and twice the head's gradient |
| a save being written | weights and optimizer once more, in main memory |
| `--minutes` | the weights to go back to after measuring, in main memory |
| the order of rows | 16 a row of the data, of two epochs, in main memory |
| gaps, CPU | 0.3 × activations (compiled: 0.2) + Muon's buffers; 0.15 × all lines above at least |
| gaps, CUDA | 0.04 × what lies on the GPU |

Tokens are those of one micro-batch on one rank; C is the width, Q and K are the widths of queries
and keys, I that of the feed-forward; b is 4 in float32, 2 in bfloat16 (where 2 C of the first line
is 5 C). What layers keep is exact (a test counts what autograd keeps); the shares of gaps are
fitted to the table below, of float32 and up to 32M parameters. The least share of a large model is
that of those small ones: on a CPU one that would have just fitted may be refused
(`machine.check_memory=false` tries it). In bfloat16 and on GPUs none of it was measured here.

`benchmarks/train_memory.py` sets the estimate beside the peak of resident memory of real runs (two
cores, float32, a checkpoint after each step, every run in a process of its own):

| run | estimated, MB | measured, MB | |
|---|---|---|---|
"""

_CHECK = """
`small` has 13.8M parameters (6 layers, width 384, vocabulary 8192), `32M` 8 layers of width 512, 2
key heads of 8, QK norm and a vocabulary of 16384, `demo` and the last 4 layers of width 256. 2,048
tokens a micro-batch (half of them a rank of two) and Muon where nothing else is said. The worst are
WORST.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE}")

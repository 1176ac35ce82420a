"""Training speed on the reference model, next to `transformers`' Llama at its fastest setting.

The model has 13.8M parameters (vocabulary 8192, 6 layers, 6 heads, width 384), the batch 16 rows of
256 tokens, the text is the demo's plays. Ours is the trainer's own step: loader, loss, clipping,
fused AdamW, guard, deterministic algorithms. The peer gets the same batches, clipping and optimizer
in a bare loop. All its settings are tried; then the fastest and ours take turns, step by step, and
medians are compared.
The last line is one JSON object:

- `ours_tok_s`, `peer_tok_s`: tokens a second; `ratio` is the first over the second.
- `peak_gflops`: this machine's matrix products in the run's number format, measured in this run.
- `details.any_order_tok_s`: ours without deterministic algorithms, which is what they cost.
- `share_of_peak`: what ours makes of it, at 6 operations a parameter and token (the table once, as
  the head) and causal attention.

    python benchmarks/train_throughput.py [--steps 15]
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from plays import prepared_plays

if TYPE_CHECKING:
    from llamita.training.trainer import Trainer

CONTEXT, ROWS, VOCABULARY = 256, 16, 8192
TRIAL_STEPS = 3
PEAK_WIDTH = 1024  # of square matrices
Step = Callable[[], None]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def seconds_of(step: Step) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def our_trainer(data: Path, folder: Path, optimizer: str, *, deterministic: bool = True) -> Trainer:
    """The trainer of a run with default settings."""
    import torch

    from llamita.data.training_data import TrainingData
    from llamita.model import Transformer
    from llamita.training.machine.precision import choose_precision
    from llamita.training.records.observer import SILENT
    from llamita.training.settings.recipe_file import build_recipe
    from llamita.training.trainer import Trainer

    precision, reason = choose_precision("auto", torch.device("cpu"))
    say(f"ours computes in {precision}: {reason}")
    settings = [
        "model.preset=small",
        f"batch.context_length={CONTEXT}",
        f"batch.sequences={ROWS}",
        f"optimizer.name={optimizer}",
        "optimizer.learning_rate=0.001",
        "length.steps=100000",
        "machine.device=cpu",
        "machine.compile=on",
        f"machine.precision={precision}",
        f"machine.deterministic={str(deterministic).lower()}",
    ]
    recipe = build_recipe(None, settings, {})
    opened = TrainingData.open([data])
    config = recipe.model_shape(opened.tokenizer.vocab_size)
    model = Transformer(config).initialize(0, zero_outputs=True)
    trainer = Trainer(folder, opened, recipe, model, opened.tokenizer, SILENT)
    trainer.compile()
    return trainer


def peer_steps(trainer: Trainer) -> dict[str, Step]:
    """A step of `transformers`' Llama of the same shape for each of its settings."""
    import torch

    from llamita.model.precision import is_slow

    config = trainer.model.config
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    loader = trainer.data.loader(CONTEXT, ROWS, 1, "stream", False)
    settings = transformers.LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=config.tie_word_embeddings,
    )
    # Emulated, one bfloat16 step would take minutes.
    dtypes = [torch.float32] if is_slow(torch.bfloat16) else [torch.bfloat16, torch.float32]

    def make(dtype: torch.dtype, attention: str, compiled: bool) -> Step:
        model = transformers.LlamaForCausalLM._from_config(settings, attn_implementation=attention)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        forward = torch.compile(model, dynamic=False) if compiled else model

        def step() -> None:
            ids = loader.next_batch().input_ids
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                loss = forward(input_ids=ids, labels=ids, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return step

    choices = itertools.product(dtypes, ("sdpa", "eager"), (True, False))
    return {
        f"{str(dtype).removeprefix('torch.')}, {attention} attention"
        f"{', compiled' if compiled else ''}": make(dtype, attention, compiled)
        for dtype, attention, compiled in choices
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=15, help="of each contestant")
    arguments = parser.parse_args()
    # As the command line does, before PyTorch starts its threads.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(contest(Path(scratch), arguments.steps)))


def contest(folder: Path, steps: int) -> dict[str, Any]:
    import torch

    from llamita.model.precision import product_seconds
    from llamita.training.machine.allocator import keep_freed_memory

    keep_freed_memory()  # for the peer as well
    data = prepared_plays(folder, VOCABULARY)
    started = time.perf_counter()
    trainers = {name: our_trainer(data, folder, name) for name in ("adamw", "muon")}
    trainers["any order"] = our_trainer(data, folder, "adamw", deterministic=False)
    ready = time.perf_counter() - started
    ours: dict[str, Step] = {name: partial(_take, trainer) for name, trainer in trainers.items()}
    peers = peer_steps(trainers["adamw"])
    tokens = CONTEXT * ROWS
    tried = {}
    for name, step in (ours | peers).items():
        step()
        tried[name] = tokens / min(seconds_of(step) for _ in range(TRIAL_STEPS))
        say(f"tried {name}: {tried[name]:,.0f} tokens/s")
    best = max(peers, key=tried.__getitem__)
    turns: dict[str, Step] = {"peer": peers[best], **ours}
    times: dict[str, list[float]] = {name: [] for name in turns}
    precision = trainers["adamw"].recipe.machine.precision
    dtype, device = getattr(torch, precision), torch.device("cpu")
    products = []
    for _ in range(steps):
        products.append(product_seconds(dtype, device, PEAK_WIDTH, PEAK_WIDTH))
        for name, step in turns.items():
            times[name].append(seconds_of(step))
    rates = {name: tokens / median(found) for name, found in times.items()}
    flops = trainers["adamw"].meter.flops_per_token
    # The best of all rounds: a share above 1 would be no share.
    peak = 2 * PEAK_WIDTH**3 / min(products)
    return {
        "ours_tok_s": round(rates["adamw"], 1),
        "peer_tok_s": round(rates["peer"], 1),
        "ratio": round(rates["adamw"] / rates["peer"], 3),
        "peak_gflops": round(peak / 1e9, 1),
        "share_of_peak": round(rates["adamw"] * flops / peak, 3),
        "details": {
            "precision": precision,
            "peer": best,
            "peer_share_of_peak": round(rates["peer"] * flops / peak, 3),
            "muon_tok_s": round(rates["muon"], 1),
            "any_order_tok_s": round(rates["any order"], 1),
            "best_tok_s": {name: round(tokens / min(found), 1) for name, found in times.items()},
            "tried_tok_s": {name: round(rate, 1) for name, rate in tried.items()},
            "ready_seconds_of_three": round(ready, 1),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        },
    }


def _take(trainer: Trainer) -> None:
    with trainer.computing():
        trainer.take_step()


if __name__ == "__main__":
    main()

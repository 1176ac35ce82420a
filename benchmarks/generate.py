"""Generating with SmolLM2-135M on this CPU, next to `transformers` and llama.cpp.

Every contestant is warmed up twice and tried twice at each of its settings; then the two best of
either side take turns, round by round, and medians are compared, so that what else the machine does
falls on all alike. On two idle cores it takes about ten minutes.
The last line is one JSON object:

- `decode_vs_transformers`: tokens a second after the first, one text, each at its best setting.
- `prefill_vs_llama_cpp`: tokens a second of reading a prompt of 512 tokens, likewise.
- `speculative_ratio`: tokens a second with prompt-lookup drafts over those without, where the text
  repeats its prompt; `details.speculative.elsewhere` is the same where it repeats nothing.
- `constraint_overhead`: seconds a JSON schema takes of each token, over those of a decode step at
  our best setting.

    python benchmarks/generate.py [--rounds 3] [--only decode,prefill,speculative,constraint]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from contest import PREFILL_TOKENS, WARM_UPS, Measure, Ours, best, medians, rounded, say, take_turns
from gguf_agreement import model_path, play
from peers import Transformers, llama_cpp_rates

PARTS = ("decode", "prefill", "speculative", "constraint")
DTYPES = ("float32", "bfloat16")
GGUF_KINDS = ("bf16", "f16", "q8_0", "q4_0", "q4_1")
LONGEST_DRAFT = 16
PASSAGES = 2
DRAFTED_TOKENS = 96
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "role": {"enum": ["king", "queen", "fool", "soldier"]},
        "lines": {
            "type": "array",
            "items": {"type": "string", "maxLength": 60},
            "minItems": 2,
            "maxItems": 4,
        },
    },
    "required": ["name", "age", "role", "lines"],
    "additionalProperties": False,
}


def decode_part(
    ours: dict[str, Ours], directory: Path, text: list[int], rounds: int, new_tokens: int
) -> dict[str, Any]:
    prompt = text[:32]
    peer_measures: dict[str, Measure] = {}
    for dtype in DTYPES:
        peer = Transformers(directory, dtype)
        for compiled in (False, True):
            name = f"{dtype}, {'static compiled' if compiled else 'dynamic'} cache"
            peer_measures[name] = partial(peer.decode_rate, prompt, new_tokens, compiled)
    our_measures: dict[str, Measure] = {
        name: partial(one.decode_rate, prompt, new_tokens) for name, one in ours.items()
    }
    our_rates, peer_rates = take_turns([our_measures, peer_measures], rounds)
    (our_best, our_rate), (peer_best, peer_rate) = best(our_rates), best(peer_rates)
    same = {}
    for dtype in DTYPES:
        mine = max(median(found) for name, found in our_rates.items() if dtype in name)
        theirs = max(median(found) for name, found in peer_rates.items() if dtype in name)
        same[dtype] = round(mine / theirs, 3)
    return {
        "ratio": our_rate / peer_rate,
        "ours": our_best,
        "transformers": peer_best,
        "our_tok_s": our_rate,
        "tok_s": {"ours": medians(our_rates), "transformers": medians(peer_rates)},
        "same_dtype_ratio": same,
        "new_tokens": new_tokens,
    }


def prefill_part(
    ours: dict[str, Ours], ggufs: dict[str, Path], text: list[int], rounds: int, threads: int
) -> dict[str, Any]:
    prompts = [text[700 * at : 700 * at + PREFILL_TOKENS] for at in range(WARM_UPS + 1)]
    through: set[str] = set()

    def llama_cpp_rate(path: Path, flash: bool) -> float:
        found = llama_cpp_rates(path, prompts, 1, threads, flash)
        through.add(found["through"])
        return float(median(found["prefill"]))

    peer_measures: dict[str, Measure] = {
        f"{kind}, flash attention {'on' if flash else 'off'}": partial(llama_cpp_rate, path, flash)
        for kind, path in ggufs.items()
        for flash in (False, True)
    }
    our_measures: dict[str, Measure] = {
        name: partial(one.prefill_rate, text) for name, one in ours.items()
    }
    our_rates, peer_rates = take_turns([our_measures, peer_measures], rounds)
    (our_best, our_rate), (peer_best, peer_rate) = best(our_rates), best(peer_rates)
    return {
        "ratio": our_rate / peer_rate,
        "ours": our_best,
        "llama_cpp": peer_best,
        "through": sorted(through),
        "tok_s": {"ours": medians(our_rates), "llama_cpp": medians(peer_rates)},
        "tokens": PREFILL_TOKENS,
    }


def speculative_part(one: Ours, text: list[int], rounds: int) -> dict[str, Any]:
    """With drafts and without, in turns.

    copying: a passage stands there twice, then begins once more, and the model repeats it. asked:
    it is asked in a chat to repeat the passage, which it does more or less. elsewhere: the play
    goes on, sampled, so that the text does not fall into circles.
    """
    from llamita.tokenizer.chat import ChatFormat

    tokenizer = one.engine.tokenizer
    assert tokenizer is not None
    gap = tokenizer.encode("\n\n")
    ratios: dict[str, list[float]] = {"copying": [], "asked": [], "elsewhere": []}
    shares: dict[str, list[float]] = {name: [] for name in ratios}
    same = True
    one.decode_rate(text[:32], 16)  # warmed up
    for number in range(PASSAGES):
        passage = text[1000 * number + 300 : 1000 * number + 600]
        request = f"Repeat this text exactly, word for word:\n\n{tokenizer.decode(passage)}"
        chat = [{"role": "user", "content": request}]
        cases: list[tuple[str, list[int], dict[str, Any]]] = [
            ("copying", [*passage, *gap, *passage, *gap, *passage[:20]], {}),
            ("asked", ChatFormat.of(tokenizer).encode(chat, None, True), {}),
            ("elsewhere", passage[:100], {"temperature": 1.0, "seed": number}),
        ]
        for name, prompt, settings in cases:
            rates: dict[int, list[float]] = {0: [], LONGEST_DRAFT: []}
            for _ in range(rounds):
                outputs = []
                for longest, found in rates.items():
                    tokens, _, rate = one.generate(
                        prompt, DRAFTED_TOKENS, speculative=longest, **settings
                    )
                    outputs.append(tokens)
                    found.append(rate)
                same = same and outputs[0] == outputs[1]
            ratios[name].append(median(rates[LONGEST_DRAFT]) / median(rates[0]))
            shares[name].append(repeated_share(prompt, outputs[0]))
            say(f"speculative, {name}: {ratios[name][-1]:.2f} ×, {shares[name][-1]:.0%} repeated")
    return {
        "ratio": median(ratios["copying"]),
        "elsewhere": median(ratios["elsewhere"]),
        "ratios": {name: rounded(found) for name, found in ratios.items()},
        "repeated_share": {name: rounded(found) for name, found in shares.items()},
        "same_tokens": same,
        "longest_draft": LONGEST_DRAFT,
    }


def repeated_share(prompt: list[int], tokens: list[int], length: int = 8) -> float:
    """Share of the tokens within runs of `length` that stand in the prompt."""
    runs = {tuple(prompt[at : at + length]) for at in range(len(prompt) - length + 1)}
    repeated = {
        place
        for at in range(len(tokens) - length + 1)
        if tuple(tokens[at : at + length]) in runs
        for place in range(at, at + length)
    }
    return len(repeated) / len(tokens)


def best_decode_rate(ours: dict[str, Ours], text: list[int], rounds: int, tokens: int) -> float:
    """Tokens a second after the first, at our best setting."""
    measures: dict[str, Measure] = {
        name: partial(one.decode_rate, text[:32], tokens) for name, one in ours.items()
    }
    return best(take_turns([measures], rounds)[0])[1]


def constraint_part(one: Ours, rate: float) -> dict[str, Any]:
    """What mask, choice under the mask and acceptance take of each token of a constrained text.

    Beside a decode step it is little, so it is timed by itself: a text that was generated under
    the schema is gone through again, each time under a schema that is new to the constraint.

    rate: tokens a second of free text, at our best setting.
    """
    import numpy as np

    from llamita.inference.constraints import compile_constraint
    from llamita.inference.history import History
    from llamita.inference.params import SamplingParams
    from llamita.inference.sampling import choose

    tokenizer, vocab_size = one.engine.tokenizer, one.engine.backend.config.vocab_size
    assert tokenizer is not None
    prompt = tokenizer.encode("A person of the play, as JSON:\n")
    sampling = {"temperature": 0.8, "seed": 1}
    tokens, _, constrained_rate = one.generate(prompt, 200, schema=SCHEMA, **sampling)
    free_rate = one.generate(prompt, len(tokens), **sampling)[2]
    free = SamplingParams.from_settings(sampling)
    logits = np.random.default_rng(0).normal(size=vocab_size).astype(np.float32)
    compiling, masked, plain = [], [], []
    for number in range(20):
        schema = {**SCHEMA, "title": f"Person {number}"}
        params = SamplingParams.from_settings({"schema": schema, **sampling})
        start = time.perf_counter()
        constraint = compile_constraint(params, tokenizer, frozenset())
        assert constraint is not None
        compiling.append(time.perf_counter() - start)
        matcher, history = constraint.start(prompt), History(prompt, params, vocab_size)
        start = time.perf_counter()
        for token_id in tokens:
            choose(logits, params, history, 5, matcher.mask())
            matcher.accept(token_id)
        masked.append((time.perf_counter() - start) / len(tokens))
        start = time.perf_counter()
        for _ in tokens:
            choose(logits, free, history, 5)
        plain.append((time.perf_counter() - start) / len(tokens))
    taken = median(masked) - median(plain)
    return {
        "overhead": taken * rate,
        "microseconds": {
            "taken": round(1e6 * taken, 1),
            "masked_choice": round(1e6 * median(masked), 1),
            "free_choice": round(1e6 * median(plain), 1),
        },
        "step_ms": round(1e3 / rate, 2),
        "compile_ms": round(1e3 * median(compiling), 1),
        "tokens": len(tokens),
        "tok_s_whole": {
            "constrained": round(constrained_rate, 2),
            "free": round(free_rate, 2),
        },
        "text": tokenizer.decode(tokens),
    }


def convert(source: Path, destination: Path, *arguments: str) -> Path:
    command = [sys.executable, "-m", "llamita", "convert", str(source), str(destination)]
    subprocess.run([*command, *arguments, "--no-verify"], check=True, stdout=sys.stderr)
    return destination


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--only", default=",".join(PARTS), help="some of the parts, with commas")
    parser.add_argument("--no-compile", action="store_true", help="leave our compiled settings out")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"--only knows {', '.join(PARTS)}")
    # As the command line does, before PyTorch starts its threads.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    import torch

    import llamita

    source = model_path()
    ours = {}
    for dtype in DTYPES:
        lm = llamita.load(source, device="cpu", dtype=dtype)
        ours[dtype] = Ours(lm, compiled=False)
        if not arguments.no_compile:
            ours[f"{dtype}, compiled"] = Ours(lm, compiled=True)
    plain = ours[DTYPES[0]]
    tokenizer = plain.engine.tokenizer
    assert tokenizer is not None
    text = tokenizer.encode(play()[:40_000])
    details: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rounds": arguments.rounds,
    }
    with tempfile.TemporaryDirectory(prefix="generate-") as folder:
        if "decode" in parts:
            directory = convert(source, Path(folder) / "hf", "--to", "hf")
            details["decode"] = decode_part(
                ours, directory, text, arguments.rounds, arguments.new_tokens
            )
        if "prefill" in parts:
            ggufs = {
                kind: convert(
                    source, Path(folder) / f"{kind}.gguf", "--to", "gguf", "--quant", kind
                )
                for kind in GGUF_KINDS
            }
            details["prefill"] = prefill_part(
                ours, ggufs, text, arguments.rounds, details["threads"]
            )
    if "speculative" in parts:
        details["speculative"] = speculative_part(plain, text, arguments.rounds)
    if "constraint" in parts:
        rate = details["decode"]["our_tok_s"] if "decode" in details else None
        if rate is None:
            rate = best_decode_rate(ours, text, arguments.rounds, arguments.new_tokens)
        details["constraint"] = constraint_part(plain, rate)

    def headline(part: str, key: str = "ratio") -> float | None:
        return round(details[part][key], 4) if part in details else None

    print(
        json.dumps(
            {
                "decode_vs_transformers": headline("decode"),
                "prefill_vs_llama_cpp": headline("prefill"),
                "speculative_ratio": headline("speculative"),
                "constraint_overhead": headline("constraint", "overhead"),
                "speculative_elsewhere": headline("speculative", "elsewhere"),
                "details": details,
            }
        )
    )


if __name__ == "__main__":
    main()

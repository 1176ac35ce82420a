"""The runtimes that the targets are written for, as judges of what was written.

llamita's own reader and writer share their tables, so a fault in a table cancels out in a round
trip. `transformers` reads HuggingFace directories and llama.cpp (as the package `xllamacpp`) reads
GGUF; where one is installed, its logits, its token ids and its rendering of a chat must be those
of llamita for the same file. For the other layouts there is nothing to install.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llamita.tokenizer.base import Tokenizer

RUNTIMES = {"hf": ("transformers", "transformers"), "gguf": ("llama.cpp", "xllamacpp")}
"""By target: the runtime's name, and the package that has it."""
WORKER = ["-m", "llamita.shipping.runtime_worker"]
"""Arguments of Python that run `runtime_worker`."""
_SECONDS = 3600
# Attention and matrix products of another program sum in another order.
_LOGIT_TOLERANCE = 1e-4
_LOGPROB_TOLERANCE = 0.01
_TOP_AGREEMENT = 0.999
# llama.cpp rounds what flows through 16-bit and block products: to 16 bits, or to 8 by blocks.
_ROUNDED_TOP_AGREEMENT = 0.95
# Measured: log-probabilities move by 0.014 of the logits' scale on average, at most.
_ROUNDED_MEAN_GAP = 0.1
# Two tokens whose logits part by less than this share of the logits' scale are as good as tied.
_TIE, _ROUNDED_TIE = 0.001, 0.05


@dataclass(frozen=True)
class Probe:
    """What a runtime is asked, with llamita's own answers for the same file.

    Attributes:
        rows: token ids [B, T]; logits: float32 [B, T, V].
        texts: to be tokenized; tokenizer: llamita's, of the written file.
        messages, chat: a conversation and how it is rendered; None where it cannot be.
        exact: whether the runtime works with the same 32-bit numbers.
    """

    rows: Tensor
    logits: Tensor
    texts: list[str] = field(default_factory=list)
    tokenizer: Tokenizer | None = None
    messages: list[dict[str, Any]] | None = None
    chat: str | None = None
    exact: bool = True


def runtime_of(target: str) -> tuple[str, bool] | None:
    """The name of the runtime that `target` is for and whether it is installed; None: there is
    none."""
    if target not in RUNTIMES:
        return None
    name, package = RUNTIMES[target]
    return name, importlib.util.find_spec(package) is not None


def judge(
    name: str, path: Path, probe: Probe, differences: list[str], notes: list[str]
) -> dict[str, Any]:
    """What the runtime `name` makes of the file or folder at `path`.

    What speaks against it, a crash included, is added to `differences`, what it was not asked to
    `notes`. Returns the figures.
    """
    with tempfile.TemporaryDirectory() as directory:
        answer = _ask(name, path, probe, Path(directory))
        if "error" in answer:
            differences.append(f"{name} cannot use it: {answer['error']}")
            return {"name": name, "version": answer.get("version")}
        found: dict[str, Any] = {"name": name, "version": answer["version"]}
        if name == "transformers":
            found |= _judge_logits(answer, Path(directory) / "logits.npy", probe, differences)
        else:
            found |= _judge_log_probabilities(answer, probe, differences)
    if probe.tokenizer is not None and not probe.texts:
        found["token_ids_equal"] = None
        notes.append(f"{name} did not judge the tokenizer: it has no tokens for any text to ask.")
    elif probe.tokenizer is not None:
        found["token_ids_equal"] = _judge_ids(name, answer, probe, differences)
    if probe.chat is None and probe.tokenizer is not None and probe.tokenizer.chat_template:
        notes.append(f"{name} did not judge the chat template: it takes no conversation to ask.")
    if probe.chat is not None:
        found["chat_equal"] = _judge_chat(name, answer, probe, differences)
    return found


def _ask(name: str, path: Path, probe: Probe, directory: Path) -> dict[str, Any]:
    answer = directory / "answer.json"
    request = {
        "runtime": name,
        "path": str(path),
        "rows": probe.rows.tolist(),
        "tokenizes": probe.tokenizer is not None,
        "texts": probe.texts,
        "messages": probe.messages if probe.chat is not None else None,
        "logits": str(directory / "logits.npy"),
        "answer": str(answer),
        "threads": torch.get_num_threads(),
        "plain_token": _plain_token(probe.tokenizer),
    }
    try:
        process = subprocess.run(
            [sys.executable, *WORKER],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=_SECONDS,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it gave no answer within {_SECONDS} seconds."}
    if answer.exists():
        content: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        if "error" in content:
            content["error"] += _reason(process.stderr, only_errors=True)
        return content
    return {"error": f"it ended with code {process.returncode}.{_reason(process.stderr)}"}


def _plain_token(tokenizer: Tokenizer | None) -> int:
    """A token that is text by itself."""
    if tokenizer is None:
        return 0
    tokens = ((i, tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size))
    return next((i for i, text in tokens if text.isalnum() and text.isascii()), 0)


def _reason(stderr: bytes, only_errors: bool = False) -> str:
    """What the runtime itself said last."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines()]
    lines = [line for line in lines if line and (not only_errors or "error" in line.lower())]
    return f" ({' / '.join(lines[-2:])[:500]})" if lines else ""


def _judge_logits(
    answer: dict[str, Any], path: Path, probe: Probe, differences: list[str]
) -> dict[str, Any]:
    import numpy as np

    if answer["not_loaded"]:
        differences.append(f"transformers could not place {', '.join(answer['not_loaded'][:5])}.")
    logits = torch.from_numpy(np.load(path))
    if logits.shape != probe.logits.shape:
        differences.append(
            f"transformers gives logits {list(logits.shape)}, llamita {list(probe.logits.shape)}."
        )
        return {}
    gap, scale = float((logits - probe.logits).abs().max()), float(probe.logits.std())
    limit = _LOGIT_TOLERANCE * scale
    if not gap <= limit:
        differences.append(
            f"transformers gives other logits: they differ by up to {gap:.3g}, where {limit:.3g} "
            f"is allowed (their scale is {scale:.3g})."
        )
    return {"positions": probe.rows.numel(), "max_logit_gap": gap}


def _judge_log_probabilities(
    answer: dict[str, Any], probe: Probe, differences: list[str]
) -> dict[str, Any]:
    logits = probe.logits[0]
    expected = logits.log_softmax(-1)
    scale = float(logits.std())
    tie = (_TIE if probe.exact else _ROUNDED_TIE) * scale
    agreeing, same, gaps = 0, 0, []
    for position, best in enumerate(answer["positions"]):
        token, log_probability = best[0]
        lead = float(logits[position].max() - logits[position][token])
        same += lead == 0.0
        agreeing += lead <= tie
        gaps.append(abs(float(expected[position][token]) - log_probability))
    positions = len(answer["positions"])
    share = agreeing / positions
    least = _TOP_AGREEMENT if probe.exact else _ROUNDED_TOP_AGREEMENT
    if not share >= least:
        differences.append(
            f"llama.cpp puts another token first at {positions - agreeing} of {positions} "
            f"positions; at least {least:.1%} must agree."
        )
    worst = max(gaps)
    if probe.exact and not worst <= _LOGPROB_TOLERANCE:
        differences.append(
            f"llama.cpp gives the most likely token another log-probability: they differ by up "
            f"to {worst:.3g}, where {_LOGPROB_TOLERANCE:g} is allowed."
        )
    mean = sum(gaps) / positions
    if not mean <= _ROUNDED_MEAN_GAP * scale:
        differences.append(
            f"llama.cpp gives other log-probabilities: by {mean:.3g} on average, where "
            f"{_ROUNDED_MEAN_GAP * scale:.3g} is allowed (the logits' scale is {scale:.3g})."
        )
    return {
        "positions": positions,
        "top_token_agreement": share,
        "top_token_equal": same / positions,
        "max_logprob_gap": worst,
        "mean_logprob_gap": mean,
    }


def _judge_ids(name: str, answer: dict[str, Any], probe: Probe, differences: list[str]) -> bool:
    assert probe.tokenizer is not None
    for text, found in zip(probe.texts, answer["ids"], strict=True):
        for special, ids in zip((False, True), found, strict=True):
            own = probe.tokenizer.encode(text, add_special_tokens=special)
            if own != ids:
                how = "with" if special else "without"
                differences.append(
                    f"{name} tokenizes {text[:40]!r} differently, {how} special tokens: "
                    f"{str(ids)[:60]}, llamita {str(own)[:60]}."
                )
                return False
    return True


def _judge_chat(name: str, answer: dict[str, Any], probe: Probe, differences: list[str]) -> bool:
    assert probe.chat is not None
    own, found = probe.chat, answer["chat"]
    bos = None if probe.tokenizer is None else probe.tokenizer.bos_token_id
    if bos is not None and probe.tokenizer is not None and name == "llama.cpp":
        # It takes a BOS off the rendered text where the tokenizer will put one in front.
        text = probe.tokenizer.shown_bytes(bos, skip_special_tokens=False).decode(errors="replace")
        own, found = own.removeprefix(text), found.removeprefix(text)
    if own != found:
        differences.append(
            f"{name} renders a chat differently: {found[:120]!r}, llamita {own[:120]!r}."
        )
    return bool(own == found)

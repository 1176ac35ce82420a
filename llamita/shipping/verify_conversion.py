"""Is what a conversion wrote the model that it read? Tensors, logits, text, chat, real runtime.

Every tensor is compared to the bit with what was to be written. That leaves faults which a reader
and a writer share, so the whole models are compared as well, and the target's own runtime judges
the file where it is installed. Rounding is told from faults: the written model must equal the
rounded source as closely as a lossless copy would, and what rounding itself costs is measured.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from llamita.errors import LlamitaError
from llamita.evaluation.bits_per_byte import BitsPerByte, bits_per_byte
from llamita.formats.checkpoint import Checkpoint, build_model
from llamita.formats.detect import load_checkpoint
from llamita.formats.stored import StoredTensor
from llamita.inference.lm import LM
from llamita.model.transformer import Transformer
from llamita.shipping import runtimes
from llamita.shipping.streamed import streamed_bytes, streamed_model, whole_bytes
from llamita.shipping.verify import DEFAULT_TOLERANCE, Comparison, compare, probe_rows
from llamita.shipping.verify_chat import PROBE_CONVERSATION, compare_chat, render
from llamita.shipping.verify_tensors import compare_tensors, expected_tensors, is_lossless
from llamita.shipping.verify_tokenizers import PAGE
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.load import checkpoint_tokenizer

VERIFIED, SELF_CHECK, FAILED, UNVERIFIED = "verified", "self-check", "failed", "unverified"
_MODELS_AT_ONCE = 2
_SPARE_BYTES = 2**29
DEFAULT_MEMORY = 2.5e9
"""Bytes that the models compared may take by default, so that verifying takes less than 3 GB."""
Say = Callable[[str], object]


@dataclass
class Verification:
    """What was found; the report is made of it.

    status: "verified" (the target's runtime agrees), "self-check" (llamita's own reader does),
        "failed".
    """

    status: str = SELF_CHECK
    tensors: int = 0
    comparison: Comparison | None = None
    rounded_logit_gap: float | None = None
    chat_equal: bool | None = None
    runtime: dict[str, Any] | None = None
    bits_per_byte: dict[str, Any] | None = None
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Under the keys of `verify.json`."""
        found = self.comparison
        return {
            "status": self.status,
            "same": not self.differences,
            "tensors_compared": self.tensors,
            "max_logit_gap": None if found is None else found.max_logit_gap,
            "logit_scale": None if found is None else found.logit_scale,
            "positions": 0 if found is None else found.positions,
            "rounded_logit_gap": self.rounded_logit_gap,
            "greedy_equal": None if found is None else found.greedy_equal,
            "token_ids_equal": None if found is None else found.token_ids_equal,
            "chat_equal": self.chat_equal,
            "bits_per_byte": self.bits_per_byte,
            "runtime": self.runtime,
            "differences": self.differences,
            "notes": self.notes,
        }


def verify_conversion(
    source: Checkpoint,
    tokenizer: Tokenizer | None,
    path: Path,
    target: str,
    quantization: str | None,
    texts: Sequence[str] | None = None,
    memory: float = DEFAULT_MEMORY,
    say: Say = lambda text: None,
) -> Verification:
    """Hold the checkpoint at `path`, written as `target`, against its source.

    Args:
        tokenizer: the source's, or None where it was left out.
        texts: documents for bits per byte, besides the built-in page.
        memory: bytes that models may take; larger ones are read part by part.
        say: told what is being done.

    A file that cannot be read back is a failed verification, not an error.
    """
    found = Verification()
    try:
        result = load_checkpoint(path)
        own = None if tokenizer is None else checkpoint_tokenizer(result)
        _verify(found, source, tokenizer, result, own, target, quantization, texts, memory, say)
    except LlamitaError as error:
        found.differences.append(f"it cannot be read back: {error.message}")
    if found.differences:
        found.status = FAILED
    return found


def _verify(
    found: Verification,
    source: Checkpoint,
    tokenizer: Tokenizer | None,
    result: Checkpoint,
    own: Tokenizer | None,
    target: str,
    quantization: str | None,
    texts: Sequence[str] | None,
    memory: float,
    say: Say,
) -> None:
    say("comparing every tensor")
    expected = expected_tensors(
        source.tensors, result.tensors, quantization, found.differences, found.notes
    )
    found.tensors = compare_tensors(expected, result.tensors, found.differences)
    found.chat_equal = compare_chat(tokenizer, own, found.differences, found.notes)
    runtime = runtimes.runtime_of(target)
    found.runtime = None if runtime is None else {"name": runtime[0], "version": None}
    available = available_memory()
    memory = min(memory, available)
    is_streamed = _MODELS_AT_ONCE * whole_bytes(source) + _SPARE_BYTES > memory
    needed = streamed_bytes(source) + _SPARE_BYTES
    if is_streamed and needed > available:
        found.notes.append(
            f"logits were not compared: that needs {needed / 1e9:.1f} GB of memory, "
            f"{available / 1e9:.1f} GB are free. Every tensor was."
        )
        return
    if set(expected) != set(source.tensors):
        return
    say("comparing logits, greedy tokens and tokenization")
    make = streamed_model if is_streamed else _whole_model
    probe = _compare_models(
        found, source, tokenizer, result, own, expected, texts, target, make, say
    )
    if runtime is None:
        return
    name, is_installed = runtime
    if not is_installed:
        package = runtimes.RUNTIMES[target][1]
        found.notes.append(f"{name} did not judge it: the package {package} is not installed.")
    elif target == "gguf" and own is None:
        found.notes.append(f"{name} did not judge it: it runs no model without a tokenizer.")
    elif target == "hf" and whole_bytes(source) + _SPARE_BYTES > memory:
        needed = whole_bytes(source) + _SPARE_BYTES
        found.notes.append(
            f"{name} did not judge it: that needs {needed / 1e9:.1f} GB of memory. Allow it with "
            f"--memory {math.ceil(needed / 1e9)}."
        )
    else:
        say(f"asking {name}")
        found.runtime = runtimes.judge(name, result.path, probe, found.differences)
        found.status = VERIFIED


def _compare_models(
    found: Verification,
    source: Checkpoint,
    tokenizer: Tokenizer | None,
    result: Checkpoint,
    own: Tokenizer | None,
    expected: dict[str, StoredTensor],
    texts: Sequence[str] | None,
    target: str,
    make: Callable[[Checkpoint], Transformer],
    say: Say,
) -> runtimes.Probe:
    """Compare source and result; returns what the target's runtime is to be asked."""

    def model(checkpoint: Checkpoint, tokenizer: Tokenizer | None) -> LM:
        return LM(make(checkpoint), tokenizer, checkpoint.generation)

    single_pass = make is streamed_model
    written, before = model(result, own), model(source, tokenizer)
    lossy = any(not is_lossless(source.tensors[n], t) for n, t in result.tensors.items())
    found.comparison = compare(
        before, written, math.inf if lossy else DEFAULT_TOLERANCE, single_pass
    )
    if lossy or texts is not None:
        say("measuring bits per byte")
        found.bits_per_byte = _bits_per_byte(found, before, written, texts)
    verdict = found.comparison
    if lossy:  # what was rounded must be the rounded source as exactly as a copy is the source
        before = model(replace(source, tensors=expected), tokenizer)
        verdict = compare(before, written, single_pass=single_pass)
        found.rounded_logit_gap = verdict.max_logit_gap
    del before
    found.differences += verdict.differences
    found.notes += verdict.notes
    rows = probe_rows(written, written)
    chat = None if own is None else render(own, PROBE_CONVERSATION)
    return runtimes.Probe(
        rows=rows,
        logits=written.logits(rows).cpu(),
        texts=_texts_for(own, target),
        tokenizer=own,
        messages=PROBE_CONVERSATION if chat is not None else None,
        chat=chat,
        exact=all(
            tensor.dtype == torch.float32 and tensor.blocks is None
            for tensor in result.tensors.values()
        ),
    )


def _whole_model(checkpoint: Checkpoint) -> Transformer:
    return build_model(checkpoint, "cpu", torch.float32)


def _texts_for(tokenizer: Tokenizer | None, target: str) -> list[str]:
    """Lines of the page that the runtime is to tokenize."""
    if tokenizer is None:
        return []
    lines = []
    for line in (*PAGE.splitlines(keepends=True), PAGE):
        # transformers finds control tokens in text, where llamita never does.
        if target == "hf" and any(name in line for name in tokenizer.special_tokens):
            continue
        try:
            tokenizer.encode(line)
        except LlamitaError:
            continue
        lines.append(line)
    return lines


def _bits_per_byte(
    found: Verification, before: LM, after: LM, texts: Sequence[str] | None
) -> dict[str, Any] | None:
    """Of both models, on the page and on `texts`; a loss no rounding explains is a difference."""
    if before.tokenizer is None or after.tokenizer is None:
        found.notes.append("no bits per byte: there is no tokenizer.")
        return None
    measured = _measure(found, before, after, _kept_lines(before.tokenizer)) or {}
    if texts is not None:
        measured["text"] = _measure(found, before, after, texts)
    return measured or None


def _measure(
    found: Verification, before: LM, after: LM, texts: Sequence[str]
) -> dict[str, Any] | None:
    assert before.tokenizer is not None
    assert after.tokenizer is not None
    try:
        left = bits_per_byte(before.model, before.tokenizer, texts)
        right = bits_per_byte(after.model, after.tokenizer, texts)
    except LlamitaError as error:
        found.notes.append(f"no bits per byte: {error.message}")
        return None
    loss = right.bits_per_byte - left.bits_per_byte
    if not loss <= largest_loss(left, before.config.vocab_size):
        found.differences.append(
            f"bits per byte rise from {left.bits_per_byte:.4f} to {right.bits_per_byte:.4f}: more "
            "than half of what the model knows is lost."
        )
    return {"before": left.bits_per_byte, "after": right.bits_per_byte, "bytes": left.bytes}


def largest_loss(before: BitsPerByte, vocab_size: int) -> float:
    """How many more bits per byte are still the same model, rounded.

    A model that knows nothing pays log2(vocab_size) a token. Whoever loses half of the way from
    there is broken; blocks of 4 bits lose a few percent of it. A model near that line (or beyond:
    fresh ones are) may lose a tenth of it.
    """
    nothing = before.tokens * math.log2(vocab_size) / before.bytes
    return max(0.5 * (nothing - before.bits_per_byte), 0.1 * nothing)


def _kept_lines(tokenizer: Tokenizer) -> list[str]:
    """Lines of the page that the tokenizer gives back as they were."""
    lines = []
    for line in PAGE.splitlines(keepends=True):
        try:
            if tokenizer.decode(tokenizer.encode(line)) == line:
                lines.append(line)
        except LlamitaError:
            continue
    return lines


def available_memory() -> float:
    """Bytes of memory that can be had without swapping; infinity where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as handle:
            for line in handle:
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):
        return math.inf

"""Is what a conversion wrote the model that it read? Tensors, logits, text, chat, real runtime.

Every tensor is compared to the bit with what was to be written. That leaves faults which a reader
and a writer share, so the whole models are compared as well, and the target's own runtime judges
the file where it is installed. Rounding is told from faults: the written model must equal the
rounded source as closely as a lossless copy would, and what rounding itself costs is measured.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from llamita.errors import LlamitaError
from llamita.formats.checkpoint import Checkpoint, build_model
from llamita.formats.detect import load_checkpoint
from llamita.formats.stored import StoredTensor
from llamita.inference.lm import LM
from llamita.model.transformer import Transformer
from llamita.shipping import runtimes
from llamita.shipping.streamed import streamed_bytes, streamed_model, whole_bytes
from llamita.shipping.verify import DEFAULT_TOLERANCE, Comparison, compare, probe_rows
from llamita.shipping.verify_chat import compare_chats, first_rendered
from llamita.shipping.verify_loss import compare_bits_per_byte
from llamita.shipping.verify_tensors import compare_tensors, expected_tensors, is_lossless
from llamita.shipping.verify_tokenizers import PAGE, compare_tokenizers
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
        "failed", "unverified" (nothing was compared).
    """

    status: str = SELF_CHECK
    tensors: int = 0
    comparison: Comparison | None = None
    rounded_logit_gap: float | None = None
    token_ids_equal: bool | None = None
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
            "same": None if self.status == UNVERIFIED else not self.differences,
            "tensors_compared": self.tensors,
            "max_logit_gap": None if found is None else found.max_logit_gap,
            "logit_scale": None if found is None else found.logit_scale,
            "positions": 0 if found is None else found.positions,
            "rounded_logit_gap": self.rounded_logit_gap,
            "greedy_equal": None if found is None else found.greedy_equal,
            "token_ids_equal": self.token_ids_equal,
            "chat_equal": self.chat_equal,
            "bits_per_byte": self.bits_per_byte,
            "runtime": self.runtime,
            "differences": self.differences,
            "notes": self.notes,
        }


@dataclass(frozen=True)
class Claim:
    """What was converted, and to what: the claim that is to be verified.

    Attributes:
        tokenizer: the source's, or None where it was left out.
        path: what was written; target: its format.
        texts: documents for bits per byte, besides the built-in page.
        lost_stops: stop tokens that the target has no place for, as the user was told.
        memory: bytes that models may take; larger ones are read part by part.
        say: told what is being done.
    """

    source: Checkpoint
    tokenizer: Tokenizer | None
    path: Path
    target: str
    quantization: str | None = None
    texts: Sequence[str] | None = None
    lost_stops: Collection[int] = ()
    memory: float = DEFAULT_MEMORY
    say: Say = lambda text: None


def verify_conversion(claim: Claim) -> Verification:
    """Hold what was written against its source.

    A file that cannot be read back is a failed verification, not an error.
    """
    found = Verification()
    try:
        result = load_checkpoint(claim.path)
        own = None if claim.tokenizer is None else checkpoint_tokenizer(result)
        _verify(found, claim, result, own)
    except LlamitaError as error:
        found.differences.append(f"it cannot be read back: {error.message}")
    if found.differences:
        found.status = FAILED
    return found


def _verify(found: Verification, claim: Claim, result: Checkpoint, own: Tokenizer | None) -> None:
    claim.say("comparing every tensor")
    source = claim.source
    expected = expected_tensors(
        source.tensors, result.tensors, claim.quantization, found.differences, found.notes
    )
    found.tensors = compare_tensors(expected, result.tensors, found.differences)
    runtime = runtimes.runtime_of(claim.target)
    found.runtime = None if runtime is None else {"name": runtime[0], "version": None}
    available = available_memory()
    memory = min(claim.memory, available)
    is_streamed = _MODELS_AT_ONCE * whole_bytes(source) + _SPARE_BYTES > memory
    needed = streamed_bytes(source) + _SPARE_BYTES
    is_too_large = is_streamed and needed > available
    if is_too_large or set(expected) != set(source.tensors):
        texts = claim.tokenizer, own, found.differences, found.notes
        found.token_ids_equal, found.chat_equal = compare_tokenizers(*texts), compare_chats(*texts)
        if is_too_large:
            found.notes.append(
                f"logits were not compared: that needs {needed / 1e9:.1f} GB of memory, "
                f"{available / 1e9:.1f} GB are free. Every tensor was."
            )
        return
    claim.say("comparing logits, greedy tokens, tokenization and chats")
    make = streamed_model if is_streamed else _whole_model
    probe = _compare_models(found, claim, result, own, expected, make)
    if runtime is None:
        return
    name, is_installed = runtime
    if not is_installed:
        package = runtimes.RUNTIMES[claim.target][1]
        found.notes.append(f"{name} did not judge it: the package {package} is not installed.")
    elif claim.target == "gguf" and own is None:
        found.notes.append(f"{name} did not judge it: it runs no model without a tokenizer.")
    elif claim.target == "hf" and whole_bytes(source) + _SPARE_BYTES > memory:
        needed = whole_bytes(source) + _SPARE_BYTES
        found.notes.append(
            f"{name} did not judge it: that needs {needed / 1e9:.1f} GB of memory. Allow it with "
            f"--memory {math.ceil(needed / 1e9)}."
        )
    else:
        claim.say(f"asking {name}")
        found.runtime = runtimes.judge(name, result.path, probe, found.differences, found.notes)
        found.status = VERIFIED


def _compare_models(
    found: Verification,
    claim: Claim,
    result: Checkpoint,
    own: Tokenizer | None,
    expected: dict[str, StoredTensor],
    make: Callable[[Checkpoint], Transformer],
) -> runtimes.Probe:
    """Compare source and result; returns what the target's runtime is to be asked."""
    source = claim.source

    def model(checkpoint: Checkpoint, tokenizer: Tokenizer | None) -> LM:
        return LM(make(checkpoint), tokenizer, checkpoint.generation)

    single_pass = make is streamed_model
    written, before = model(result, own), model(source, claim.tokenizer)
    lossy = any(not is_lossless(source.tensors[n], t) for n, t in result.tensors.items())
    tolerance = math.inf if lossy else DEFAULT_TOLERANCE
    verdict = compare(before, written, tolerance, single_pass, claim.lost_stops)
    found.comparison = verdict
    if lossy or claim.texts is not None:
        claim.say("measuring bits per byte")
        found.bits_per_byte = compare_bits_per_byte(
            before, written, claim.texts, found.differences, found.notes
        )
    if lossy:  # what was rounded must be the rounded source as exactly as a copy is the source
        before = model(replace(source, tensors=expected), claim.tokenizer)
        verdict = compare(before, written, DEFAULT_TOLERANCE, single_pass, claim.lost_stops)
        found.rounded_logit_gap = verdict.max_logit_gap
    del before
    found.token_ids_equal, found.chat_equal = verdict.token_ids_equal, verdict.chat_equal
    found.differences += verdict.differences
    found.notes += verdict.notes
    rows = probe_rows(written, written)
    messages, chat = (own and first_rendered(own)) or (None, None)
    return runtimes.Probe(
        rows=rows,
        logits=written.logits(rows).cpu(),
        texts=_texts_for(own, claim.target),
        tokenizer=own,
        messages=messages,
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

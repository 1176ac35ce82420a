"""Are two models the same? Measured, not believed: logits, greedy tokens, tokenization, chats.

Logits are compared in float32 over text and over random tokens, since text leaves most of a
vocabulary untouched. A missing un-permutation of rotary rows can read well for twenty tokens, so at
least 64 positions count. What no short probe can show (a window or a rotary scaling that acts only
far out, the embedding of a token that no probe holds) is compared as it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from llamita.config import ModelConfig
from llamita.inference.lm import LM
from llamita.model.rope import RotaryEmbedding
from llamita.shipping.verify_chat import compare_chats
from llamita.shipping.verify_tokenizers import PAGE, compare_tokenizers, encode

DEFAULT_TOLERANCE = 2e-5
GREEDY_TOKENS = 32
_ROW_LENGTH = 96
_ROWS = 2
# Settings of training alone: they are no part of what the model says.
_OF_TRAINING = ("attention_dropout", "residual_dropout", "initializer_range")
# Settings that may act on some input where they do not on the probe.
_ALWAYS_COUNT = ("vocab_size", "rms_norm_eps", "rope_theta", "sliding_window")
# Some scalings start from the context; the others are the same at any.
_SCALING = ("rope_scaling", "max_position_embeddings")
_ROUNDING = 5e-6  # relative: GGUF has the factors of frequencies in float32


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        same: nothing below speaks against it.
        max_logit_gap: the largest difference of two logits; None where they cannot be compared.
        greedy_equal: whether the same greedy tokens follow one prompt; None as above.
        token_ids_equal: whether every token and the ids of text are the same; None where neither
            model has a tokenizer.
        chat_equal: whether chats are written with the same ids; None where the first model has no
            chat template, or where it takes no conversation to judge by.
        logit_scale: the standard deviation of the first model's logits.
        positions: how many positions the logits were compared at.
        tolerance: the allowed gap, for logits of a scale of 1 or more.
        differences: why they are not the same, one sentence each.
        notes: settings that differ without a difference in what was measured.
    """

    same: bool
    max_logit_gap: float | None
    greedy_equal: bool | None
    token_ids_equal: bool | None
    chat_equal: bool | None
    logit_scale: float | None
    positions: int
    tolerance: float
    differences: list[str]
    notes: list[str]


def compare(
    a: LM,
    b: LM,
    tolerance: float = DEFAULT_TOLERANCE,
    single_pass: bool = False,
    lost_stops: Collection[int] = (),
) -> Comparison:
    """Compare two models loaded in float32.

    The largest allowed gap is `tolerance`, or `tolerance` times the scale of the logits where that
    is below 1: a model whose logits are all tiny is not the same as any other such model.

    single_pass: for models that are read anew at each pass, and whose tensors were compared:
        nothing is generated (`greedy_equal` says whether the best token is the same everywhere),
        and embeddings are not looked at.
    lost_stops: stop tokens that B is known to have no place for.
    """
    differences, notes = _compare_configs(a.config, b.config)
    if a.stop_token_ids != b.stop_token_ids:
        is_lost = set(a.stop_token_ids) - set(b.stop_token_ids) - set(lost_stops)
        (differences if is_lost else notes).append(
            f"the stop tokens are {a.stop_token_ids} in A and {b.stop_token_ids} in B."
        )
    token_ids_equal = compare_tokenizers(a.tokenizer, b.tokenizer, differences, notes)
    chat_equal = compare_chats(a.tokenizer, b.tokenizer, differences, notes)
    gap, scale, greedy_equal, positions = None, None, None, 0
    if a.config.vocab_size == b.config.vocab_size:
        rows = probe_rows(a, b)
        positions = rows.numel()
        gap, scale, best_equal = _compare_logits(a, b, rows, tolerance, differences)
        if single_pass:
            greedy_equal = best_equal
        elif gap is not None and scale is not None:
            limit = _limit(tolerance, scale)
            greedy_equal = _compare_greedy(a, b, rows[0], limit, differences, notes)
            _compare_embeddings(a, b, tolerance, differences)
    return Comparison(
        same=not differences,
        max_logit_gap=gap,
        greedy_equal=greedy_equal,
        token_ids_equal=token_ids_equal,
        chat_equal=chat_equal,
        logit_scale=scale,
        positions=positions,
        tolerance=tolerance,
        differences=differences,
        notes=notes,
    )


def _compare_configs(a: ModelConfig, b: ModelConfig) -> tuple[list[str], list[str]]:
    differences, notes = [], []
    for spec in fields(ModelConfig):
        if not spec.compare or spec.name in _OF_TRAINING:
            continue
        left, right = getattr(a, spec.name), getattr(b, spec.name)
        if left == right:
            continue
        sentence = f"{spec.name} is {left} in A and {right} in B."
        if spec.name in _SCALING:
            counts = not _turn_alike(a, b)
        else:
            counts = spec.name in _ALWAYS_COUNT and _reach(spec.name, a) != _reach(spec.name, b)
        if counts:
            differences.append(sentence)
        else:
            notes.append(sentence)
    return differences, notes


def _reach(name: str, config: ModelConfig) -> Any:
    """A setting as it acts: a window as wide as the context is none, float32 is precise enough."""
    value = getattr(config, name)
    if isinstance(value, float):
        return float(torch.tensor(value, dtype=torch.float32))
    if name == "sliding_window" and value is not None:
        return value if value < config.max_position_embeddings else None
    return value


def _turn_alike(a: ModelConfig, b: ModelConfig) -> bool:
    """Whether rotary scalings do the same, however they are spelled; `rope_theta` is told apart."""
    theta = max(a.rope_theta, b.rope_theta)
    left, right = (RotaryEmbedding(c.with_changes(rope_theta=theta)) for c in (a, b))
    ours, theirs = left.inverse_frequencies, right.inverse_frequencies
    if ours.shape != theirs.shape or not torch.allclose(ours, theirs, rtol=_ROUNDING, atol=0):
        return False
    if not math.isclose(left.magnitude, right.magnitude, rel_tol=_ROUNDING):
        return False
    dynamic = [
        ((c.rope_scaling or {})["factor"], c.max_position_embeddings)
        for c in (a, b)
        if c.rope_type == "dynamic"
    ]
    return not dynamic or (len(dynamic) == 2 and dynamic[0] == dynamic[1])


def probe_rows(a: LM, b: LM) -> Tensor:
    """Token ids [rows, T] to compare on: text first where there is a tokenizer, then random ids."""
    vocabulary = a.config.vocab_size
    context = min(a.config.max_position_embeddings, b.config.max_position_embeddings)
    length = min(_ROW_LENGTH, context)
    rows = max(_ROWS, -(-_ROW_LENGTH // length))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, vocabulary, (rows, length), generator=generator)
    encoded = encode(a.tokenizer, PAGE, special=True) if a.tokenizer is not None else []
    if isinstance(encoded, list):
        text = torch.tensor([i for i in encoded if i < vocabulary][:length], dtype=torch.long)
        ids[0, : len(text)] = text
    return ids


def _compare_logits(
    a: LM, b: LM, rows: Tensor, tolerance: float, differences: list[str]
) -> tuple[float | None, float | None, bool | None]:
    """The gap, the scale, and whether the best token is the same at each position."""
    left, right = a.logits(rows.to(a.device)).cpu(), b.logits(rows.to(b.device)).cpu()
    broken = [name for name, x in (("A", left), ("B", right)) if not bool(x.isfinite().all())]
    if broken:
        differences.append(f"the logits of {' and '.join(broken)} are not all finite numbers.")
        return None, None, None
    gaps = (left - right).abs().amax(-1)
    gap, scale = float(gaps.max()), float(left.std())
    limit = _limit(tolerance, scale)
    if gap > limit:
        beyond = gaps > limit
        first = int(beyond.any(0).nonzero()[0])
        differences.append(
            f"logits differ by up to {gap:.3g}, where {limit:.3g} is allowed (their scale is "
            f"{scale:.3g}); first at position {first}, at {int(beyond.sum())} of {gaps.numel()}."
        )
    return gap, scale, torch.equal(left.argmax(-1), right.argmax(-1))


def _limit(tolerance: float, scale: float) -> float:
    return tolerance * min(1.0, scale)


def _compare_greedy(
    a: LM, b: LM, prompt: Tensor, limit: float, differences: list[str], notes: list[str]
) -> bool:
    context = min(a.config.max_position_embeddings, b.config.max_position_embeddings)
    count = min(GREEDY_TOKENS, max(context // 2, 1))
    ids = prompt[: max(min(len(prompt), context - count) // 2, 1)].tolist()
    left, right = (
        lm.generate(ids, max_tokens=count, temperature=0.0, stop_token_ids=[]).token_ids
        for lm in (a, b)
    )
    if left == right:
        return True
    first = next(i for i in range(count) if left[i : i + 1] != right[i : i + 1])
    logits = a.logits(torch.tensor([[*ids, *left[:first]]], device=a.device))[0, -1]
    lead = float(logits[left[first]] - logits[right[first]])
    sentence = (
        f"greedy tokens part at token {first + 1} of {count}: {left[first]} in A, "
        f"{right[first]} in B, which A ranks {lead:.3g} lower."
    )
    # Gaps within the tolerance may turn a tie; more than both gaps together is another model.
    (notes if lead <= 2 * limit else differences).append(sentence)
    return False


def _compare_embeddings(a: LM, b: LM, tolerance: float, differences: list[str]) -> None:
    """Rows of tokens that no probe holds would otherwise go unseen."""
    left = a.model.model.embed_tokens.weight.detach().float().cpu()
    right = b.model.model.embed_tokens.weight.detach().float().cpu()
    if left.shape != right.shape:
        return
    gaps = (left - right).abs().amax(-1)
    scale = float(left.std())
    beyond = (~(gaps <= tolerance * scale)).nonzero().flatten()
    if len(beyond):
        differences.append(
            f"the embedding of {len(beyond)} tokens differs, first of token {int(beyond[0])}, by "
            f"up to {float(gaps.max()):.3g} (the table's scale is {scale:.3g})."
        )

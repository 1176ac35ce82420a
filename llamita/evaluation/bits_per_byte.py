"""How many bits a model needs for each byte of a text: the one figure that compares all models.

Perplexity depends on how a tokenizer cuts the text; bits per byte does not. Every byte is paid
for. Each document stands alone, behind the token that marks a document's beginning, which is
given and costs nothing; predicting the end of a document is not counted. A document longer than
the context C is read in windows of C tokens, each half a context further on than the last; a
window pays for the tokens that no earlier one paid for, so all but a document's first C tokens
are predicted from at least half a context.

The standard error treats the windows as a sample of such text. With x_i bits and y_i bytes in
window i of m, R = sum x / sum y is a ratio estimate (Cochran, Sampling Techniques, chapter 6):

    stderr = sqrt(m / (m - 1) * sum (x_i - R y_i)^2) / sum y

Tokens of one window depend on each other, therefore windows are the units and not tokens. A text
of a single window leaves nothing else: there the tokens are the units.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from llamita.errors import CheckpointError, DataError, TokenizerError
from llamita.inference.modes import Evaluating
from llamita.inference.prompts import check_token_ids, start_token_id
from llamita.model.transformer import Transformer
from llamita.tokenizer.base import Tokenizer

_BATCH_TOKENS = 8192  # tokens of one forward pass
_SORTED_TOKENS = 16 * _BATCH_TOKENS  # windows of so many tokens are sorted by length together
_LOGITS_BYTES = 64 * 2**20  # float32 logits held at a time
_ENCODED_CHARACTERS = 2**20  # documents tokenized together


@dataclass(frozen=True)
class BitsPerByte:
    """The result. `bits_per_byte_stderr` is NaN for a text of one token.

    perplexity is per token: only models with the same tokenizer compare by it. bytes are UTF-8
    bytes of the text, tokens those that were paid for.
    """

    bits_per_byte: float
    bits_per_byte_stderr: float
    perplexity: float
    bytes: int
    tokens: int


@dataclass(frozen=True)
class Window:
    """One pass: reads `inputs`, pays for `targets`, which follow the inputs from place `first` on.

    target_bytes: how many bytes of text each target stands for.
    """

    inputs: Sequence[int]
    first: int
    targets: Sequence[int]
    target_bytes: Sequence[int]


def bits_per_byte(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    *,
    context_length: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> BitsPerByte:
    """Score documents. `context_length` below the model's own (the default) makes windows shorter.

    `progress` is called with the bytes that were scored since it was called last.

    Raises:
        TokenizerError: the tokenizer does not give a text back, or marks no document's beginning.
        DataError: there is no text.
        CheckpointError: the model computes no numbers.
    """
    longest = model.config.max_position_embeddings
    context_length = longest if context_length is None else context_length
    if not 1 <= context_length <= longest:
        raise DataError(
            f"context_length is {context_length}.",
            hint=f"It must be from 1 to the model's context, {longest}.",
        )
    windows = (
        window
        for ids, sizes in _encode(texts, tokenizer, model)
        for window in split_windows(ids, sizes, context_length)
    )
    totals = _Totals()
    evaluating = Evaluating(model)
    for batch in _batches(windows):
        with evaluating:
            nats = _score(model, batch)
        for window, window_nats in zip(batch, nats, strict=True):
            totals.add(window_nats, np.asarray(window.target_bytes, dtype=np.float64))
        if progress is not None:
            progress(sum(sum(window.target_bytes) for window in batch))
    return totals.result()


def split_windows(
    ids: Sequence[int], sizes: Sequence[int], context_length: int
) -> Iterator[Window]:
    """Windows of one document that pay for each of its tokens once.

    ids: the token before the document, then the document's. sizes: the bytes of each of the
    latter. The first window predicts a full context of tokens, later ones half a context.
    """
    stride = max(1, context_length // 2)
    start = paid = 0
    while paid < len(sizes):
        end = min(start + context_length, len(sizes))
        yield Window(ids[start:end], paid - start, ids[paid + 1 : end + 1], sizes[paid:end])
        paid = end
        start += stride


def _encode(
    texts: Iterable[str], tokenizer: Tokenizer, model: Transformer
) -> Iterator[tuple[list[int], list[int]]]:
    """Token ids of each document behind its beginning, and the bytes of each token of text."""
    start = start_token_id(tokenizer, model.config)
    if start is None:
        raise TokenizerError(
            "the tokenizer has no token that marks a document's beginning (no EOS, no BOS).",
            hint="Bits per byte need one to predict the first token from.",
        )
    byte_counts: dict[int, int] = {}
    for group in _groups(texts):
        for text, ids in zip(group, tokenizer.encode_batch(group), strict=True):
            check_token_ids(ids, model.config.vocab_size, "the text")
            _check_lossless(text, tokenizer.decode(ids), tokenizer.lossy)
            for token_id in set(ids) - byte_counts.keys():
                byte_counts[token_id] = len(tokenizer.token_bytes(token_id))
            sizes = [byte_counts[token_id] for token_id in ids]
            # A space that the tokenizer puts before every text is no byte of this one.
            sizes[0] -= sum(sizes) - len(text.encode("utf-8"))
            yield [start, *ids], sizes


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    """Documents that are not empty, some characters' worth together: they encode in parallel."""
    group: list[str] = []
    characters = 0
    for text in texts:
        if text:
            group.append(text)
            characters += len(text)
        if characters >= _ENCODED_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _check_lossless(text: str, decoded: str, reason: str | None) -> None:
    if decoded == text:
        return
    place = next(
        (i for i, (a, b) in enumerate(zip(text, decoded, strict=False)) if a != b),
        min(len(text), len(decoded)),
    )
    raise TokenizerError(
        f"the tokenizer loses text: at character {place}, {text[place : place + 20]!r} "
        f"comes back as {decoded[place : place + 20]!r}{f' ({reason})' if reason else ''}.",
        hint="Bits per byte would leave out what is lost; use a tokenizer that gives text back.",
    )


def _batches(windows: Iterable[Window]) -> Iterator[list[Window]]:
    """Windows of like length together, within the token budget of a pass."""
    waiting: list[Window] = []
    tokens = 0
    for window in windows:
        waiting.append(window)
        tokens += len(window.inputs)
        if tokens >= _SORTED_TOKENS:
            yield from _batches_by_length(waiting)
            waiting, tokens = [], 0
    yield from _batches_by_length(waiting)


def _batches_by_length(windows: list[Window]) -> Iterator[list[Window]]:
    batch: list[Window] = []
    for window in sorted(windows, key=lambda window: len(window.inputs)):
        if batch and (len(batch) + 1) * len(window.inputs) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


@torch.no_grad()
def _score(model: Transformer, batch: list[Window]) -> list[np.ndarray]:
    """Nats of each target of each window, as float64."""
    device = model.lm_head.weight.device
    longest = max(len(window.inputs) for window in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    is_paid = torch.zeros(len(batch), longest, dtype=torch.bool)
    for row, window in enumerate(batch):
        length = len(window.inputs)
        ids[row, :length] = torch.tensor(window.inputs)
        is_paid[row, window.first : length] = True
    targets = torch.tensor([target for window in batch for target in window.targets])
    # Padding stands after a row's end, where causal attention cannot see it.
    hidden = model.hidden_states(ids.to(device))[is_paid.to(device)]
    nats = _nats(model, hidden, targets.to(device)).cpu().double().numpy()
    ends = itertools.accumulate(len(window.targets) for window in batch)
    return [nats[end - len(window.targets) : end] for window, end in zip(batch, ends, strict=True)]


def _nats(model: Transformer, hidden: Tensor, targets: Tensor) -> Tensor:
    """-ln p of each target [N], from hidden states [N, C], with few logits held at a time."""
    rows = max(1, _LOGITS_BYTES // (4 * model.config.vocab_size))
    parts = [
        F.cross_entropy(model.lm_head(part).float(), target, reduction="none")
        for part, target in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True)
    ]
    return torch.cat(parts)


class _Totals:
    """Bits and bytes of every window, and of the tokens while there is one window only."""

    def __init__(self) -> None:
        self._bits: list[float] = []
        self._bytes: list[float] = []
        self._tokens = 0
        self._first: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, nats: np.ndarray, sizes: np.ndarray) -> None:
        bits = nats / math.log(2)
        if self._first is None:
            self._first = bits, sizes
        self._bits.append(float(bits.sum()))
        self._bytes.append(float(sizes.sum()))
        self._tokens += len(bits)

    def result(self) -> BitsPerByte:
        if self._first is None:
            raise DataError("there is no text to score: it has 0 bytes.")
        units = self._first
        if len(self._bits) > 1:
            units = np.array(self._bits), np.array(self._bytes)
        total_bits, total_bytes = math.fsum(self._bits), sum(self._bytes)
        if not math.isfinite(total_bits):
            raise CheckpointError(
                "the model's logits are not numbers (NaN): its weights or their precision are bad.",
                hint="Try dtype float32, or another checkpoint of the run.",
            )
        nats_per_token = total_bits * math.log(2) / self._tokens
        return BitsPerByte(
            bits_per_byte=total_bits / total_bytes,
            bits_per_byte_stderr=ratio_standard_error(*units),
            perplexity=math.exp(min(nats_per_token, 700.0)),
            bytes=round(total_bytes),
            tokens=self._tokens,
        )


def ratio_standard_error(numerators: np.ndarray, denominators: np.ndarray) -> float:
    """Standard error of sum(numerators) / sum(denominators); NaN for a single unit."""
    units = len(numerators)
    if units < 2:
        return math.nan
    ratio = numerators.sum() / denominators.sum()
    residuals = numerators - ratio * denominators
    variance = units / (units - 1) * float((residuals**2).sum())
    return math.sqrt(variance) / float(denominators.sum())

"""How many bits a model needs for each byte of a text: the one figure that compares all models.

Perplexity depends on how a tokenizer cuts the text; bits per byte does not. Every byte is paid
for. Each document stands alone, behind the token that marks a document's beginning, which is
given and costs nothing; predicting the end of a document is not counted. A document longer than
the context C is read in windows of C tokens, each half a context further on than the last; a
window pays for the tokens that no earlier one paid for, so all but a document's first C tokens
are predicted from at least half a context.

The standard error says how the figure would scatter over other text of the kind. Documents are its
units (`bootstrap`): what lies within one depends on the rest of it. A single document leaves its
stretches of 1,024 bytes, which are the same for every model; they tell of this document alone, and
not of others. A text shorter than that leaves its tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from llamita.config import ModelConfig
from llamita.errors import DataError, TokenizerError
from llamita.evaluation.beginning import document_start, window_length
from llamita.evaluation.bootstrap import ratio_standard_error
from llamita.evaluation.scoring import Window, score_windows
from llamita.inference.prompts import check_token_ids
from llamita.model.transformer import Transformer
from llamita.text.documents import Document
from llamita.tokenizer.base import Tokenizer

Unit: TypeAlias = Literal["documents", "windows", "tokens"]

WINDOW_BYTES = 1024
_START_USE = "Bits per byte need one to predict the first token from."
_ENCODED_CHARACTERS = 2**20  # documents tokenized together


@dataclass(frozen=True)
class BitsPerByte:
    """The result. `bits_per_byte_stderr` is NaN for a text of one token.

    perplexity is per token: only models with the same tokenizer compare by it. bytes are UTF-8
    bytes of the text, tokens those that were paid for. stderr_over: the units of the standard
    error.
    """

    bits_per_byte: float
    bits_per_byte_stderr: float
    perplexity: float
    bytes: int
    tokens: int
    documents: int = 1
    stderr_over: Unit = "windows"


@dataclass(frozen=True)
class TextScores:
    """What each unit of a text costs: bits and bytes [units], as float64."""

    unit: Unit
    bits: np.ndarray
    bytes: np.ndarray
    total_bits: float
    total_bytes: int
    tokens: int
    documents: int

    @property
    def bits_per_byte(self) -> float:
        """Of the whole text."""
        return self.total_bits / self.total_bytes

    def summary(self) -> BitsPerByte:
        """The figures of the whole text."""
        nats_per_token = self.total_bits * math.log(2) / self.tokens
        return BitsPerByte(
            bits_per_byte=self.bits_per_byte,
            bits_per_byte_stderr=ratio_standard_error(self.bits, self.bytes),
            perplexity=math.exp(min(nats_per_token, 700.0)),
            bytes=self.total_bytes,
            tokens=self.tokens,
            documents=self.documents,
            stderr_over=self.unit,
        )


@dataclass(frozen=True)
class TextWindow(Window):
    """A window of a document. `target_bytes`: how many bytes of text each target stands for.

    place: how many bytes of the document stand before the first target.
    """

    target_bytes: Sequence[int]
    document: int = 0
    place: int = 0


def bits_per_byte(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Iterable[str | Document],
    *,
    context_length: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> BitsPerByte:
    """Score documents; see `score_texts`."""
    return score_texts(
        model, tokenizer, texts, context_length=context_length, progress=progress
    ).summary()


def score_texts(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Iterable[str | Document],
    *,
    context_length: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> TextScores:
    """What each document costs. `context_length` below the model's own makes windows shorter.

    A text is a document, but for the later pieces of one that was cut (`Document.piece`): they are
    read alone, and count to the document. `progress` is called with the bytes that were scored
    since it was called last.

    Raises:
        TokenizerError: the tokenizer does not give a text back, or marks no document's beginning.
        DataError: there is no text.
        CheckpointError: the model computes no numbers.
    """
    context_length = window_length(model.config, context_length)
    windows = (
        window
        for piece in _encode(texts, tokenizer, model)
        for window in split_windows(*piece, context_length)
    )
    totals = _Totals()
    for window, window_nats in score_windows(model, windows):
        totals.add(window, window_nats / math.log(2))
        if progress is not None:
            progress(sum(window.target_bytes))
    return totals.result()


def check_text_model(
    tokenizer: Tokenizer, config: ModelConfig, context_length: int | None = None
) -> None:
    """Raise what `score_texts` would of a model before it reads a text."""
    window_length(config, context_length)
    document_start(tokenizer, config, _START_USE)


def split_windows(
    ids: Sequence[int], sizes: Sequence[int], document: int, place: int, context_length: int
) -> Iterator[TextWindow]:
    """Windows of one text that pay for each of its tokens once.

    ids: the token before the text, then the text's. sizes: the bytes of each of the latter. place:
    where in its document the text begins. The first window predicts a full context of tokens, later
    ones half a context.
    """
    stride = max(1, context_length // 2)
    start = paid = 0
    while paid < len(sizes):
        end = min(start + context_length, len(sizes))
        paid_bytes = sizes[paid:end]
        yield TextWindow(
            ids[start:end], paid - start, ids[paid + 1 : end + 1], paid_bytes, document, place
        )
        place += sum(paid_bytes)
        paid = end
        start += stride


def _encode(
    texts: Iterable[str | Document], tokenizer: Tokenizer, model: Transformer
) -> Iterator[tuple[list[int], list[int], int, int]]:
    """Each text's ids behind its beginning, the bytes of each token, its document and place."""
    start = document_start(tokenizer, model.config, _START_USE)
    byte_counts: dict[int, int] = {}
    for group in _groups(_placed(texts)):
        encoded = tokenizer.encode_batch([text for text, _, _ in group])
        for (text, document, place), ids in zip(group, encoded, strict=True):
            check_token_ids(ids, model.config.vocab_size, "the text")
            _check_lossless(text, tokenizer.decode(ids), tokenizer.lossy)
            for token_id in set(ids) - byte_counts.keys():
                byte_counts[token_id] = len(tokenizer.token_bytes(token_id))
            sizes = [byte_counts[token_id] for token_id in ids]
            # A space that the tokenizer puts before every text is no byte of this one.
            sizes[0] -= sum(sizes) - len(text.encode("utf-8"))
            yield [start, *ids], sizes, document, place


def _placed(texts: Iterable[str | Document]) -> Iterator[tuple[str, int, int]]:
    """Texts that are not empty, each with the number of its document and its place there."""
    document, place, is_begun = -1, 0, False
    for item in texts:
        text = item if isinstance(item, str) else item.text
        if isinstance(item, str) or item.piece == 1:
            is_begun = False
        if not text:
            continue
        if not is_begun:
            document, place, is_begun = document + 1, 0, True
        yield text, document, place
        place += len(text.encode("utf-8"))


def _groups(texts: Iterable[tuple[str, int, int]]) -> Iterator[list[tuple[str, int, int]]]:
    """Texts, some characters' worth together: they encode in parallel."""
    group: list[tuple[str, int, int]] = []
    characters = 0
    for item in texts:
        group.append(item)
        characters += len(item[0])
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


class _Costs:
    """Bits and bytes of numbered things, which come in any order."""

    def __init__(self) -> None:
        self.bits: list[float] = []
        self.bytes: list[int] = []

    def add(self, number: int, bits: float, size: int) -> None:
        while len(self.bits) <= number:
            self.bits.append(0.0)
            self.bytes.append(0)
        self.bits[number] += bits
        self.bytes[number] += size


class _Totals:
    """Costs by document, and for a single one also by stretches of it and by its first tokens."""

    def __init__(self) -> None:
        self._documents, self._stretches, self._first_tokens = _Costs(), _Costs(), _Costs()
        self._tokens = 0

    def add(self, window: TextWindow, bits: np.ndarray) -> None:
        sizes = window.target_bytes
        self._documents.add(window.document, float(bits.sum()), sum(sizes))
        self._tokens += len(bits)
        if len(self._documents.bits) > 1:
            return
        place = window.place
        for token_bits, size in zip(bits.tolist(), sizes, strict=True):
            # A token belongs to the stretch that it begins in.
            self._stretches.add(place // WINDOW_BYTES, token_bits, size)
            if place < WINDOW_BYTES:
                self._first_tokens.add(len(self._first_tokens.bits), token_bits, size)
            place += size

    def result(self) -> TextScores:
        documents = len(self._documents.bits)
        if not documents:
            raise DataError("there is no text to score: it has 0 bytes.")
        unit: Unit
        if documents > 1:
            unit, costs = "documents", self._documents
        elif len(self._stretches.bits) > 1:
            unit, costs = "windows", self._stretches
        else:
            unit, costs = "tokens", self._first_tokens
        return TextScores(
            unit=unit,
            bits=np.array(costs.bits),
            bytes=np.array(costs.bytes, dtype=np.float64),
            total_bits=math.fsum(self._documents.bits),
            total_bytes=sum(self._documents.bytes),
            tokens=self._tokens,
            documents=documents,
        )

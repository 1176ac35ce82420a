"""Rows of tokens to train on, out of one split: cut from the stream, or packed from documents."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from llamita.data.dataset import TokenDataset
from llamita.data.packing import cut_documents, pack
from llamita.errors import DataError

IGNORED = -100
"""The label of a token that counts for nothing."""
Integers = npt.NDArray[np.int64]
PackingKind = Literal["stream", "documents"]


class Rows(Protocol):
    """Rows 0 to `count` - 1 of `context_length` tokens; every token to learn is in one of them."""

    dataset: TokenDataset
    context_length: int
    count: int
    packing: PackingKind
    padding: float
    """The share of all positions that hold no token."""
    has_documents: bool
    """Whether rows come with document ids."""

    def read(self, index: int) -> tuple[Integers, Integers, Integers]:
        """Input ids, labels and document ids of one row, [T] each."""


def make_rows(
    dataset: TokenDataset, context_length: int, packing: PackingKind, document_mask: bool = False
) -> Rows:
    """The rows of a split.

    Args:
        document_mask: have document ids in rows of the stream as well.

    Raises:
        DataError: there is not one row, or no separator that tells documents apart.
    """
    if packing == "documents":
        return DocumentRows(dataset, context_length)
    return StreamRows(dataset, context_length, document_mask)


class StreamRows:
    """Row r is the tokens r·T to r·T + T inclusive: inputs, and the labels one further."""

    packing: PackingKind = "stream"
    padding = 0.0

    def __init__(
        self, dataset: TokenDataset, context_length: int, document_mask: bool = False
    ) -> None:
        self.dataset = dataset
        self.context_length = context_length
        self.count = dataset.blocks(context_length)
        self.has_documents = document_mask
        self._starts: Integers | None = None
        if document_mask:
            separator = _require_separator(dataset)
            if dataset.lists_documents:
                self._starts, _ = dataset.documents(separator)

    def read(self, index: int) -> tuple[Integers, Integers, Integers]:
        inputs, labels = _read_piece(self.dataset, index * self.context_length, self.context_length)
        if not self.has_documents:
            return inputs, labels, np.zeros_like(inputs)
        if self._starts is not None:
            places = index * self.context_length + np.arange(self.context_length)
            return inputs, labels, np.searchsorted(self._starts, places, side="right")
        return inputs, labels, np.cumsum(inputs == self.dataset.separator_id)


class DocumentRows:
    """Documents, each with the separator before it, packed into rows; the rest is padding.

    Chats are as the chat format writes them, which may be without it. Padding has separators as
    inputs, no labels, and a document of its own.
    """

    packing: PackingKind = "documents"
    has_documents = True

    def __init__(self, dataset: TokenDataset, context_length: int) -> None:
        dataset.blocks(1 if context_length > 0 else context_length)
        self.dataset = dataset
        self.context_length = context_length
        self._separator = _require_separator(dataset)
        starts, lengths = dataset.documents(self._separator)
        self._starts, self._lengths = cut_documents(starts, lengths, context_length)
        self._packing = pack(self._lengths, context_length)
        self.count = self._packing.rows
        self.padding = 1 - int(lengths.sum()) / (self.count * context_length)

    def read(self, index: int) -> tuple[Integers, Integers, Integers]:
        inputs = np.full(self.context_length, self._separator, dtype=np.int64)
        labels = np.full(self.context_length, IGNORED, dtype=np.int64)
        documents = np.empty(self.context_length, dtype=np.int64)
        first, last = self._packing.offsets[index : index + 2].tolist()
        at = 0
        for number, piece in enumerate(self._packing.order[first:last].tolist()):
            length = int(self._lengths[piece])
            place = slice(at, at + length)
            inputs[place], labels[place] = _read_piece(
                self.dataset, int(self._starts[piece]), length
            )
            documents[place] = number
            at += length
        documents[at:] = last - first
        return inputs, labels, documents


def _read_piece(dataset: TokenDataset, start: int, length: int) -> tuple[Integers, Integers]:
    """Inputs from `start` on and the tokens after each, which a mask may leave out as labels."""
    tokens = dataset.read(start, length + 1)
    dataset.check_ids(tokens, start)
    labels = tokens[1:].copy()
    mask = dataset.read_mask(start + 1, length)
    if mask is not None:
        labels[~mask] = IGNORED
    return tokens[:-1], labels


def _require_separator(dataset: TokenDataset) -> int:
    if dataset.separator_id is None:
        raise DataError(
            f"the tokenizer of {dataset.directory.as_posix()} has no token that ends a document, "
            "so its documents cannot be told apart.",
            hint="Train with batch.packing=stream and batch.document_mask=false.",
        )
    return dataset.separator_id

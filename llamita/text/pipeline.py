"""A chain of stages between reading and tokenizing, with counts of what each one let through.

A stage is a function from a stream of documents to a stream of documents: it may change, drop,
split or add documents, and holds its state in itself, so a pipeline can be run again from anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from llamita.text.documents import Document

Stage = Callable[[Iterator[Document]], Iterator[Document]]


@dataclass
class StageCounts:
    """Documents and UTF-8 bytes that went into and came out of one stage."""

    name: str
    documents_in: int = 0
    bytes_in: int = 0
    documents_out: int = 0
    bytes_out: int = 0


class Pipeline:
    """Named stages, run one after the other."""

    def __init__(self, stages: Sequence[tuple[str, Stage]]) -> None:
        self.stages = list(stages)

    def run(self, documents: Iterator[Document]) -> tuple[Iterator[Document], list[StageCounts]]:
        """The documents that come out, and counts that are whole once the stream has ended."""
        counts = [StageCounts(name) for name, _ in self.stages]
        stream = _counted(documents, None, counts[0] if counts else None)
        for index, (_, stage) in enumerate(self.stages):
            after = counts[index + 1] if index + 1 < len(counts) else None
            stream = _counted(stage(stream), counts[index], after)
        return stream, counts


def utf8_length(text: str) -> int:
    """The number of bytes of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _counted(
    documents: Iterator[Document], before: StageCounts | None, after: StageCounts | None
) -> Iterator[Document]:
    for document in documents:
        size = utf8_length(document.text)
        if before is not None:
            before.documents_out += 1
            before.bytes_out += size
        if after is not None:
            after.documents_in += 1
            after.bytes_in += size
        yield document

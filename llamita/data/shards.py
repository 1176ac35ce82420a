"""Writing token shards: flat little-endian integers, one file after another.

A split begins with one separator and has one after each document, so that every document, the
first included, is conditioned on the separator before it. Shards are cut by size alone; documents
run on from one into the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from llamita.data.manifest import Shard, Split, SplitCounts, dtype_for
from llamita.errors import DataError

SHARD_TOKENS = 1 << 28


class ShardWriter:
    """Writes the documents of one split as `SPLIT-00000.bin`, …; no document, no file.

    Args:
        directory: where the files go.
        split: "train" or "val", the first part of their names.
        vocab_size: ids are below it; it decides between uint16 and uint32.
        separator_id: the token put before the first and after every document.
        shard_tokens: the most tokens in one file.
    """

    def __init__(
        self,
        directory: Path,
        split: Split,
        vocab_size: int,
        separator_id: int,
        shard_tokens: int = SHARD_TOKENS,
    ) -> None:
        self.directory = directory
        self.split = split
        self.vocab_size = vocab_size
        self.separator_id = separator_id
        self.shard_tokens = shard_tokens
        self.dtype = dtype_for(vocab_size)
        self.counts = SplitCounts()
        self.shards: list[Shard] = []
        self._file: BinaryIO | None = None
        self._hash = hashlib.sha256()
        self._tokens_in_shard = 0

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._finish_shard()

    def write_document(
        self, token_ids: Sequence[int] | npt.NDArray[np.integer], text_bytes: int
    ) -> None:
        """Append one document and its separator; `text_bytes` of UTF-8 became `token_ids`.

        Raises:
            DataError: an id is outside the vocabulary (it would wrap around in the file).
        """
        first = [self.separator_id] if self.counts.tokens == 0 else []
        ids = np.concatenate(
            [np.asarray(part, dtype=np.int64) for part in (first, token_ids, [self.separator_id])]
        )
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            wrong = ids[(ids < 0) | (ids >= self.vocab_size)][0]
            raise DataError(f"token id {wrong} is outside the vocabulary of {self.vocab_size}.")
        self._append(ids.astype(np.dtype(self.dtype).newbyteorder("<")))
        self.counts.documents += 1
        self.counts.bytes += text_bytes

    def _append(self, ids: npt.NDArray[np.unsignedinteger]) -> None:
        self.counts.tokens += len(ids)
        while len(ids):
            if self._file is None:
                self._file = (self.directory / self._name()).open("wb")
            part = ids[: self.shard_tokens - self._tokens_in_shard]
            data = part.tobytes()
            self._file.write(data)
            self._hash.update(data)
            self._tokens_in_shard += len(part)
            ids = ids[len(part) :]
            if self._tokens_in_shard == self.shard_tokens:
                self._finish_shard()

    def _name(self) -> str:
        return f"{self.split}-{len(self.shards):05d}.bin"

    def _finish_shard(self) -> None:
        if self._file is None:
            return
        self._file.close()
        self._file = None
        self.shards.append(
            Shard(
                file=self._name(),
                split=self.split,
                tokens=self._tokens_in_shard,
                sha256=self._hash.hexdigest(),
            )
        )
        self._hash = hashlib.sha256()
        self._tokens_in_shard = 0

"""Writing token shards: flat little-endian integers, one file after another.

A split begins with one separator and has one after each document, so that every document, the
first included, is conditioned on the separator before it. Shards are cut by size alone; documents
run on from one into the next. Where some tokens are only to be read, each shard has a mask of one
byte a token beside it. Where there are chats, the separator may stand inside of them (it may be
what ends a turn), so a list of the documents lies beside the shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from llamita.data.manifest import DocumentList, Shard, Split, SplitCounts, dtype_for
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
        masked: write masks too.
    """

    def __init__(
        self,
        directory: Path,
        split: Split,
        vocab_size: int,
        separator_id: int,
        shard_tokens: int = SHARD_TOKENS,
        masked: bool = False,
    ) -> None:
        self.directory = directory
        self.split = split
        self.vocab_size = vocab_size
        self.separator_id = separator_id
        self.shard_tokens = shard_tokens
        self.dtype = dtype_for(vocab_size)
        self.masked = masked
        self.counts = SplitCounts(learned_tokens=0, learned_bytes=0) if masked else SplitCounts()
        self.shards: list[Shard] = []
        self.documents: DocumentList | None = None
        self._list = _HashedFile(directory / f"{split}-documents.bin")
        self._has_chats = False
        self._file: _HashedFile | None = None
        self._mask: _HashedFile | None = None
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
        digest = self._list.close()
        if self._has_chats:
            name = self._list.path.name
            self.documents = DocumentList(split=self.split, file=name, sha256=digest)
        else:
            self._list.path.unlink()

    def write_document(
        self,
        token_ids: Sequence[int] | npt.NDArray[np.integer],
        text_bytes: int,
        learned: Sequence[bool] | None = None,
        learned_bytes: int | None = None,
        *,
        is_chat: bool = False,
        stands_alone: bool = False,
    ) -> None:
        """Append one document and its separator; `text_bytes` of UTF-8 became `token_ids`.

        Args:
            learned: for each id and the separator whether it is to be learned; None: all are.
            learned_bytes: those of `text_bytes` that are to be learned; None: all are.
            is_chat: it may have separators inside.
            stands_alone: the separator before it is no part of it.

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
        mask = np.ones(len(ids), dtype=np.uint8)
        if learned is not None:
            mask[len(first) :] = learned
        mask[: len(first)] = 0  # nothing stands before it that could predict it
        own = self.counts.tokens + len(first)
        place = [own if stands_alone else own - 1, own + len(token_ids)]
        self._list.write(np.array(place, dtype="<i8").tobytes())
        self._has_chats |= is_chat
        if stands_alone:
            mask[len(first)] = 0  # nor before this one
        self._append(ids.astype(np.dtype(self.dtype).newbyteorder("<")), mask)
        self.counts.documents += 1
        self.counts.bytes += text_bytes
        if self.counts.learned_tokens is not None and self.counts.learned_bytes is not None:
            self.counts.learned_tokens += int(mask.sum())
            self.counts.learned_bytes += text_bytes if learned_bytes is None else learned_bytes

    def _append(self, ids: npt.NDArray[np.unsignedinteger], mask: npt.NDArray[np.uint8]) -> None:
        self.counts.tokens += len(ids)
        while len(ids):
            if self._file is None:
                number = f"{len(self.shards):05d}.bin"
                self._file = _HashedFile(self.directory / f"{self.split}-{number}")
                if self.masked:
                    self._mask = _HashedFile(self.directory / f"{self.split}-mask-{number}")
            room = self.shard_tokens - self._tokens_in_shard
            self._file.write(ids[:room].tobytes())
            if self._mask is not None:
                self._mask.write(mask[:room].tobytes())
            self._tokens_in_shard += len(ids[:room])
            ids, mask = ids[room:], mask[room:]
            if self._tokens_in_shard == self.shard_tokens:
                self._finish_shard()

    def _finish_shard(self) -> None:
        if self._file is None:
            return
        mask = self._mask
        self.shards.append(
            Shard(
                file=self._file.path.name,
                split=self.split,
                tokens=self._tokens_in_shard,
                sha256=self._file.close(),
                mask=None if mask is None else mask.path.name,
                mask_sha256=None if mask is None else mask.close(),
            )
        )
        self._file = self._mask = None
        self._tokens_in_shard = 0


class _HashedFile:
    """A file that is written once, with its hash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)

    def close(self) -> str:
        """Close it; the SHA-256 of what was written."""
        self._file.close()
        return self._hash.hexdigest()

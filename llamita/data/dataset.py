"""The tokens of one split as one long sequence, memory-mapped from its shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llamita.data.manifest import Manifest, Split, dtype_for
from llamita.errors import DataError

_SCAN_TOKENS = 1 << 24


class TokenDataset:
    """One split of a DATA directory. Open it with `TokenDataset.open`.

    Attributes:
        manifest: of the whole DATA directory.
        split: "train" or "val".
        tokens: how many there are, separators included.
        vocab_size: every id is below it.
        separator_id: the token before and after each document; None where the tokenizer has none.
    """

    def __init__(self, data_dir: Path, split: Split, manifest: Manifest) -> None:
        self.directory = data_dir
        self.split = split
        self.manifest = manifest
        self.vocab_size = manifest.tokenizer.vocab_size
        self.separator_id = manifest.separator_id
        shards = [shard for shard in manifest.shards if shard.split == split]
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        self._maps: list[npt.NDArray[Any]] = [
            np.memmap(data_dir / shard.file, dtype=dtype, mode="r") for shard in shards
        ]
        self._masks = [
            None if shard.mask is None else np.memmap(data_dir / shard.mask, np.uint8, mode="r")
            for shard in shards
        ]
        lists = [one for one in manifest.documents if one.split == split]
        self._list = data_dir / lists[0].file if lists else None
        self._starts = np.cumsum([0, *(shard.tokens for shard in shards)], dtype=np.int64)
        self.tokens = int(self._starts[-1])

    @classmethod
    def open(cls, data_dir: Path, split: Split, manifest: Manifest | None = None) -> TokenDataset:
        """Open one split after checking its files against the manifest (read from the directory,
        where it is not given).

        Raises:
            DataError: the directory is no prepared data, the split is empty, a shard is missing
                or has another size than the manifest says, or the manifest contradicts itself.
        """
        manifest = manifest or Manifest.load(data_dir)
        if manifest.dtype != dtype_for(manifest.tokenizer.vocab_size):
            raise DataError(
                f"{data_dir.as_posix()} says its tokens are {manifest.dtype}, but a vocabulary of "
                f"{manifest.tokenizer.vocab_size:,} takes "
                f"{dtype_for(manifest.tokenizer.vocab_size)}: its manifest was changed.",
                hint="Prepare the data again.",
            )
        if manifest.counts(split).tokens == 0:
            raise DataError(
                f"{data_dir.as_posix()} has no {split} split.",
                hint="Prepare the text again with a --val-fraction between 0 and 1.",
            )
        check_shards(data_dir, manifest)
        return cls(data_dir, split, manifest)

    def read(self, start: int, length: int) -> npt.NDArray[np.int64]:
        """The tokens `start` to `start + length` [length], across shard borders.

        Raises:
            IndexError: the range is not inside the split.
        """
        parts = self._parts(start, length)
        out = np.empty(length, dtype=np.int64)
        for shard, here, there in parts:
            out[here] = self._maps[shard][there]
        return out

    def read_mask(self, start: int, length: int) -> npt.NDArray[np.bool_] | None:
        """Which of the tokens `start` to `start + length` are to be learned [length]; None where
        all are, as the split has no masks.

        Raises:
            IndexError: the range is not inside the split.
        """
        if not any(mask is not None for mask in self._masks):
            return None
        parts = self._parts(start, length)
        out = np.ones(length, dtype=np.bool_)
        for shard, here, there in parts:
            mask = self._masks[shard]
            if mask is not None:
                out[here] = mask[there] != 0
        return out

    def find(self, token_id: int) -> npt.NDArray[np.int64]:
        """Where `token_id` stands in the split, ascending."""
        found = [np.empty(0, dtype=np.int64)]
        for shard, first in zip(self._maps, self._starts.tolist(), strict=False):
            for at in range(0, len(shard), _SCAN_TOKENS):
                found.append(np.flatnonzero(shard[at : at + _SCAN_TOKENS] == token_id) + first + at)
        return np.concatenate(found)

    @property
    def lists_documents(self) -> bool:
        """Whether its documents are listed, as separators alone do not tell them apart."""
        return self._list is not None

    def documents(self, separator_id: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where the inputs of each document begin, ascending, and how many they are.

        They begin with the separator before it, but for a chat that stands without one; the token
        behind them, which is a label alone, is the separator.
        """
        if self._list is not None:
            places = np.fromfile(self._list, dtype="<i8").reshape(-1, 2).astype(np.int64)
            return places[:, 0], places[:, 1] - places[:, 0]
        end = self.tokens - 1  # the last token is a label alone
        separators = self.find(separator_id)
        starts = np.union1d([0], separators[separators < end])
        return starts, np.diff(np.append(starts, end))

    def check_ids(self, token_ids: npt.NDArray[np.int64], start: int) -> None:
        """Raise DataError where one of the tokens from `start` on is outside the vocabulary."""
        if not len(token_ids) or token_ids.max() < self.vocab_size:
            return
        number = start + int(np.argmax(token_ids >= self.vocab_size))
        raise DataError(
            f"{self.shard_of(number).as_posix()} holds the token id "
            f"{token_ids[number - start]:,} (token number {number:,} of its split), but the "
            f"vocabulary has {self.vocab_size:,}.",
            hint="The shard is damaged: copy it or prepare the data again.",
        )

    def _parts(self, start: int, length: int) -> list[tuple[int, slice, slice]]:
        """A range as its shards, and for each the part of the range and the part of the shard."""
        end = start + length
        if start < 0 or length < 0 or end > self.tokens:
            raise IndexError(f"tokens {start} to {end} of a split with {self.tokens}")
        shard = int(np.searchsorted(self._starts, start, side="right")) - 1
        parts = []
        at = start
        while at < end:
            first, after = int(self._starts[shard]), int(self._starts[shard + 1])
            stop = min(end, after)
            parts.append((shard, slice(at - start, stop - start), slice(at - first, stop - first)))
            at = stop
            shard += 1
        return parts

    def shard_of(self, token: int) -> Path:
        """The file that holds token number `token` of the split."""
        names = [shard.file for shard in self.manifest.shards if shard.split == self.split]
        return self.directory / names[int(np.searchsorted(self._starts, token, side="right")) - 1]

    def blocks(self, context_length: int) -> int:
        """How many whole blocks there are: `context_length` inputs and the token after each.

        Raises:
            DataError: not even one.
        """
        if context_length < 1:
            raise DataError(f"the context length is {context_length}; it must be at least 1.")
        count = (self.tokens - 1) // context_length
        if count == 0:
            raise DataError(
                f"the {self.split} split of {self.directory.as_posix()} has {self.tokens:,} "
                f"tokens, fewer than one block of {context_length:,} + 1.",
                hint="Prepare more text, or train with a shorter context.",
            )
        return count


def check_shards(data_dir: Path, manifest: Manifest) -> None:
    """Raise DataError unless every shard is there with the size that the manifest says, and the
    shards of a split add up to its tokens."""
    splits: tuple[Split, ...] = ("train", "val")
    for split in splits:
        in_shards = sum(shard.tokens for shard in manifest.shards if shard.split == split)
        if in_shards != manifest.counts(split).tokens:
            raise DataError(
                f"the manifest of {data_dir.as_posix()} counts {manifest.counts(split).tokens:,} "
                f"{split} tokens, but its shards hold {in_shards:,}.",
                hint="It was changed or is damaged: prepare the data again.",
            )
    item_size = np.dtype(manifest.dtype).itemsize
    for shard in manifest.shards:
        path = data_dir / shard.file
        if not path.is_file():
            raise DataError(f"the shard {path.as_posix()} is missing.", hint="Prepare it again.")
        size, expected = path.stat().st_size, shard.tokens * item_size
        if size != expected:
            raise DataError(
                f"the shard {path.as_posix()} has {size:,} bytes where the manifest says "
                f"{expected:,} ({shard.tokens:,} tokens of {manifest.dtype}).",
                hint="It is damaged or was not copied whole: copy it or prepare it again.",
            )
        if shard.mask is not None:
            check_mask(data_dir / shard.mask, shard.tokens)
    for listed in manifest.documents:
        path, count = data_dir / listed.file, manifest.counts(listed.split).documents
        size = path.stat().st_size if path.is_file() else -1
        if size != 16 * count:
            raise DataError(
                f"the list of documents {path.as_posix()} is missing or not whole: it must have "
                f"{16 * count:,} bytes.",
                hint="Copy it again, or prepare the data again.",
            )


def check_mask(path: Path, tokens: int) -> None:
    """Raise DataError unless there is a mask of one byte for each of so many tokens."""
    if not path.is_file():
        raise DataError(f"the mask {path.as_posix()} is missing.", hint="Prepare it again.")
    size = path.stat().st_size
    if size != tokens:
        raise DataError(
            f"the mask {path.as_posix()} has {size:,} bytes, but there are {tokens:,} tokens; "
            "it must have one byte for each.",
            hint="It belongs to other tokens or was not copied whole: copy or make it again.",
        )

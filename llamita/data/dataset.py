"""The tokens of one split as one long sequence, memory-mapped from its shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llamita.data.manifest import Manifest, Split, dtype_for
from llamita.errors import DataError


class TokenDataset:
    """One split of a DATA directory. Open it with `TokenDataset.open`.

    Attributes:
        manifest: of the whole DATA directory.
        split: "train" or "val".
        tokens: how many there are, separators included.
        vocab_size: every id is below it.
        separator_id: the token before and after each document.
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
        self._starts = np.cumsum([0, *(shard.tokens for shard in shards)], dtype=np.int64)
        self.tokens = int(self._starts[-1])

    @classmethod
    def open(cls, data_dir: Path, split: Split) -> TokenDataset:
        """Open one split after checking its files against the manifest.

        Raises:
            DataError: the directory is no prepared data, the split is empty, a shard is missing
                or has another size than the manifest says, or the manifest contradicts itself.
        """
        manifest = Manifest.load(data_dir)
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
        end = start + length
        if start < 0 or length < 0 or end > self.tokens:
            raise IndexError(f"tokens {start} to {end} of a split with {self.tokens}")
        out = np.empty(length, dtype=np.int64)
        shard = int(np.searchsorted(self._starts, start, side="right")) - 1
        filled = 0
        while filled < length:
            offset = start + filled - int(self._starts[shard])
            part = self._maps[shard][offset : offset + length - filled]
            out[filled : filled + len(part)] = part
            filled += len(part)
            shard += 1
        return out

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

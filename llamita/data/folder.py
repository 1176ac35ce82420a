"""A DATA folder: what `llamita prepare` made, or token bins of other systems."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llamita.data.dataset import TokenDataset
from llamita.data.manifest import MANIFEST_NAME, Manifest, Split
from llamita.data.token_bins import find_token_bins, read_token_bins
from llamita.errors import DataError
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.load import load_tokenizer


@dataclass(frozen=True)
class DataFolder:
    """`path` is what it was opened by: the folder, or of token bins also their training file."""

    path: Path
    directory: Path
    manifest: Manifest
    tokenizer: Tokenizer

    @classmethod
    def open(cls, path: Path) -> DataFolder:
        """Open prepared data or token bins, told apart by what lies there.

        Raises:
            DataError: it is neither, or damaged.
            TokenizerError: its tokenizer is missing or damaged.
        """
        if not (path / MANIFEST_NAME).is_file():
            bins = find_token_bins(path)
            if bins is not None:
                return cls(path, bins.directory, *read_token_bins(bins))
        manifest = Manifest.load(path)
        tokenizer = load_tokenizer(path)
        if tokenizer.fingerprint != manifest.tokenizer.fingerprint:
            raise DataError(
                f"the tokenizer in {path.as_posix()} is not the one its tokens were made with.",
                hint="Put the right tokenizer files back, or prepare the data again.",
            )
        return cls(path, path, manifest, tokenizer)

    def dataset(self, split: Split) -> TokenDataset:
        """The tokens of one split; DataError where it is empty or its files are damaged."""
        return TokenDataset.open(self.directory, split, self.manifest)

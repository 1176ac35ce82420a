"""A DATA folder: what `llamita prepare` made, or token bins of other systems."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llamita.data.dataset import TokenDataset, check_shards
from llamita.data.manifest import MANIFEST_NAME, Manifest, Split
from llamita.data.token_bins import find_token_bins, read_token_bins
from llamita.errors import DataError
from llamita.files import sha256_file
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

    def check_content(self) -> None:
        """Raise DataError where a shard or a mask is not what the manifest has the hash of. Token
        bins were read to be opened; they are not read again.

        Training goes on at a place in these files: what changed in them unseen would make another
        run of it.
        """
        check_shards(self.directory, self.manifest)
        if self.manifest.kind == "token bins":
            return
        for path, expected in _files(self.directory, self.manifest):
            if sha256_file(path) != expected:
                raise DataError(
                    f"{path.as_posix()} was changed after it was prepared: its content has "
                    "another hash than the manifest says.",
                    hint="Copy it again, or prepare the data again.",
                )

    def dataset(self, split: Split) -> TokenDataset:
        """The tokens of one split; DataError where it is empty or its files are damaged."""
        return TokenDataset.open(self.directory, split, self.manifest)


def bytes_to_check(path: Path) -> int:
    """How much is read to open the data at `path` and check its content, by the sizes of its files.

    Raises:
        DataError: it is neither prepared data nor token bins, or its manifest is damaged.
    """
    bins = None if (path / MANIFEST_NAME).is_file() else find_token_bins(path)
    if bins is not None:
        files = [*bins.tokens.values(), *bins.masks.values()]
    else:
        files = [file for file, _ in _files(path, Manifest.load(path))]
    return sum(file.stat().st_size for file in files if file.is_file())


def _files(directory: Path, manifest: Manifest) -> list[tuple[Path, str]]:
    """The files of tokens, masks and places of documents with their hashes."""
    named = [(shard.file, shard.sha256) for shard in manifest.shards]
    named += [(s.mask, s.mask_sha256) for s in manifest.shards if s.mask and s.mask_sha256]
    named += [(listed.file, listed.sha256) for listed in manifest.documents]
    return [(directory / name, sha256) for name, sha256 in named]

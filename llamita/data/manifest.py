"""`manifest.json` of a DATA directory: what made it, from what, and what is in it.

It is written last, so a directory without one is known to be incomplete.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError, computed_field

from llamita.errors import DataError
from llamita.files import read_json, sha256_text, write_json
from llamita.text.pipeline import StageCounts

MANIFEST_NAME = "manifest.json"
MAX_UINT16_VOCABULARY = 1 << 16

Split = Literal["train", "val"]
DType = Literal["uint16", "uint32"]


class Source(BaseModel):
    """A file that was read, as it lies on the disk."""

    path: str
    bytes: int
    sha256: str


class SplitCounts(BaseModel):
    """What one split holds. `bytes` is UTF-8 text; `tokens` counts the separators as well.

    Where a mask leaves tokens out, `learned_tokens` and `learned_bytes` count the others.
    """

    documents: int = 0
    bytes: int = 0
    tokens: int = 0
    learned_tokens: int | None = None
    learned_bytes: int | None = None

    @property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes that a token with a loss stands for, separators counted as tokens."""
        if self.learned_tokens is None or self.learned_bytes is None:
            return max(1, self.bytes) / max(1, self.tokens)
        return max(1, self.learned_bytes) / max(1, self.learned_tokens)


class TokenizerInfo(BaseModel):
    kind: str
    vocab_size: int
    fingerprint: str


class Shard(BaseModel):
    """One file of tokens: raw little-endian integers, no header.

    `mask` is a file of one byte a token: 1 where it is to be learned, 0 where it is only read.
    """

    file: str
    split: Split
    tokens: int
    sha256: str
    mask: str | None = None
    mask_sha256: str | None = None


class DocumentList(BaseModel):
    """Where the documents of a split lie: raw little-endian int64, for each where its tokens begin
    and the number of the separator behind it.

    It is there where chats are, in which the separator may stand too. Of a chat whose format puts
    no separator in front, the one before it is no part.
    """

    split: Split
    file: str
    sha256: str


class Settings(BaseModel):
    """What `prepare` was asked to do; the same sources and settings give the same data.

    `val_sources`: how many of the sources, the last ones, are held out whole. `longest` tokens and
    what is done with a `long` chat: see `encoding.Fit`. `chat_template` and `tokenizer_also` are
    hashes: of the template that the tokenizer came with, of files that a trained one learned from
    beside the text. `chat_format`: None where the tokenizer's template or `DEFAULT_FORMAT` decides.
    """

    tokenizer: str
    val_fraction: float
    field: str
    encoding: str
    max_document_chars: int
    seed: int
    loss: Literal["all", "assistant"] = "all"
    val_sources: int = 0
    longest: int | None = None
    long: Literal["drop", "cut"] | None = None
    chat_template: str | None = None
    chat_format: str | None = None
    tokenizer_also: list[str] | None = None


class Manifest(BaseModel):
    """The whole manifest. Unknown keys are ignored, so later versions may add some."""

    model_config = ConfigDict(extra="ignore")

    kind: Literal["data", "token bins"] = "data"
    llamita_version: str
    settings: Settings | None
    sources: list[Source]
    skipped_files: dict[str, int] = {}
    empty_files: int = 0
    cut_documents: int = 0
    replaced_surrogates: int = 0
    stages: list[StageCounts]
    train: SplitCounts
    val: SplitCounts
    chats: int = 0
    dropped_chats: int = 0
    cut_chats: int = 0
    split_chats: int = 0
    unreasoned_chats: int = 0
    undeclared_chats: int = 0
    also_held_out: int = 0
    held_out: list[str] = []
    tokenizer: TokenizerInfo
    dtype: DType
    separator_id: int | None
    shards: list[Shard]
    documents: list[DocumentList] = []

    @computed_field  # type: ignore[prop-decorator]
    @property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes that one token of text stands for, separators not counted."""
        splits = [split for split in (self.train, self.val) if split.tokens]
        tokens = sum(split.tokens - split.documents - 1 for split in splits)
        return sum(split.bytes for split in splits) / max(tokens, 1)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def fingerprint(self) -> str:
        """The identity of the data as training sees it: equal tokens, equal fingerprint."""
        content: dict[str, object] = {
            "tokenizer": self.tokenizer.fingerprint,
            "dtype": self.dtype,
            "separator_id": self.separator_id,
            "shards": [[shard.split, shard.tokens, shard.sha256] for shard in self.shards],
        }
        if any(shard.mask_sha256 for shard in self.shards):
            content["masks"] = [shard.mask_sha256 for shard in self.shards]
        if self.documents:
            content["documents"] = [[one.split, one.sha256] for one in self.documents]
        return sha256_text(json.dumps(content))

    def counts(self, split: Split) -> SplitCounts:
        return self.train if split == "train" else self.val

    def save(self, directory: Path) -> None:
        write_json(directory / MANIFEST_NAME, self.model_dump(mode="json"))

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """Read the manifest of a DATA directory.

        Raises:
            DataError: there is none, or it is not the manifest of prepared data.
        """
        path = directory / MANIFEST_NAME
        hint = "Make the data with: llamita prepare TEXT… -o DATA"
        if not directory.is_dir():
            raise DataError(f"there is no data directory {directory.as_posix()}.", hint=hint)
        if not path.is_file():
            raise DataError(
                f"{directory.as_posix()} has no {MANIFEST_NAME}, so it is no (whole) data.",
                hint=hint,
            )
        try:
            return cls.model_validate(read_json(path))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise DataError(
                f"{path.as_posix()} is not the manifest of data: {place}: {first['msg']}.",
                hint=hint,
            ) from None


def dtype_for(vocab_size: int) -> DType:
    """The smallest of the two dtypes that holds every id below `vocab_size`."""
    return "uint16" if vocab_size <= MAX_UINT16_VOCABULARY else "uint32"

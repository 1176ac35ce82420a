"""All that a run learns from: one or more DATA folders with one tokenizer, and their weights."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from llamita.data.folder import DataFolder
from llamita.data.loader import BlockLoader
from llamita.data.mixing import integer_weights
from llamita.data.rows import PackingKind, make_rows
from llamita.errors import DataError
from llamita.files import sha256_text
from llamita.tokenizer.base import Tokenizer


@dataclass(frozen=True)
class TrainingData:
    """DATA folders in a fixed order. `weights` are as they were given; None: each by its tokens."""

    folders: tuple[DataFolder, ...]
    weights: tuple[float, ...] | None = None

    @classmethod
    def open(cls, paths: Sequence[Path], weights: Sequence[float] | None = None) -> TrainingData:
        """Open DATA folders that are to be trained on together.

        Raises:
            DataError: there is none, one is damaged or there twice, they differ in their
                tokenizers or chat templates, or there is not one weight above 0 for each.
        """
        if not paths:
            raise DataError(
                "there is no data to train on.", hint="Make some: llamita prepare TEXT… -o DATA"
            )
        if weights is not None and len(weights) != len(paths):
            raise DataError(
                f"there are {len(weights)} weights for {len(paths)} DATA.",
                hint="Give one weight for each DATA, in their order, or none at all.",
            )
        integer_weights(weights or [1.0])
        folders = tuple(DataFolder.open(path) for path in paths)
        first = folders[0]
        seen: dict[str, DataFolder] = {}
        for folder in folders:
            if folder.tokenizer.fingerprint != first.tokenizer.fingerprint:
                raise DataError(
                    f"{folder.path.as_posix()} and {first.path.as_posix()} have different "
                    "tokenizers: the same ids would mean different text.",
                    hint="Prepare both with one: llamita prepare TEXT… -o DATA --tokenizer "
                    f"{first.path.as_posix()}",
                )
            twin = seen.setdefault(folder.manifest.fingerprint, folder)
            if twin is not folder:
                raise DataError(
                    f"{folder.path.as_posix()} and {twin.path.as_posix()} hold the same tokens.",
                    hint="Give the data once; with --weights it can count for more.",
                )
        data = cls(folders, None if weights is None else tuple(weights))
        data._refuse_other_templates()
        return data

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of all, with the chat template that any of them brings."""
        return self._teller.tokenizer

    @property
    def _teller(self) -> DataFolder:
        """The first folder that says how chats are written; where none does, the first."""
        telling = (folder for folder in self.folders if folder.tokenizer.chat_templates)
        return next(telling, self.folders[0])

    def _refuse_other_templates(self) -> None:
        teller = self._teller
        templates = teller.tokenizer.chat_templates
        for folder in self.folders:
            if folder.tokenizer.chat_templates not in ({}, templates):
                raise DataError(
                    f"{teller.path.as_posix()} and {folder.path.as_posix()} have different chat "
                    "templates: the model could keep only one of them.",
                    hint="Prepare both with one: llamita prepare TEXT… -o DATA --tokenizer "
                    f"{teller.path.as_posix()}",
                )

    @cached_property
    def fingerprint(self) -> str:
        """The identity of all that is read, weights included."""
        prints = [folder.manifest.fingerprint for folder in self.folders]
        if len(prints) == 1:
            return prints[0]
        weights = None if self.weights is None else integer_weights(self.weights)
        content = json.dumps([prints, weights])
        return sha256_text(content)

    @property
    def described(self) -> str:
        """Where it lies."""
        return ", ".join(str(folder.path) for folder in self.folders)

    @property
    def train_tokens(self) -> int:
        return sum(folder.manifest.train.tokens for folder in self.folders)

    @property
    def shares(self) -> list[float]:
        """What part of the training each source is; they add up to 1."""
        weights = self.weights or [folder.manifest.train.tokens for folder in self.folders]
        return [weight / sum(weights) for weight in weights]

    @property
    def names(self) -> list[str]:
        """A short name of each source, all different."""
        names = [folder.path.name or folder.path.resolve().name for folder in self.folders]
        twice = {name for name, count in Counter(names).items() if count > 1}
        return [
            f"{name}-{number}" if name in twice else name
            for number, name in enumerate(names, start=1)
        ]

    def loader(
        self,
        context_length: int,
        batch_size: int,
        seed: int,
        packing: PackingKind = "stream",
        document_mask: bool = False,
        rank: int = 0,
        ranks: int = 1,
    ) -> BlockLoader:
        """The training batches, of `batch_size` rows each; those of one of `ranks` processes.

        Raises:
            DataError: a source is shorter than one row, or a number is out of its range.
        """
        rows = [
            make_rows(folder.dataset("train"), context_length, packing, document_mask)
            for folder in self.folders
        ]
        weights = None if self.weights is None else integer_weights(self.weights)
        return BlockLoader(rows, batch_size, seed, weights, rank, ranks)

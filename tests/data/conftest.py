"""Small DATA directories made of given token ids, without any text or tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from llamita.data.manifest import Manifest, Settings, TokenizerInfo
from llamita.data.shards import ShardWriter

WriteData = Callable[..., Manifest]


@pytest.fixture
def settings() -> Settings:
    return Settings(
        tokenizer="char",
        val_fraction=0.1,
        field="text",
        encoding="utf-8",
        max_document_chars=1000,
        seed=0,
    )


@pytest.fixture
def write_data(settings: Settings) -> WriteData:
    """`write_data(directory, documents, vocab_size=…, …)` writes the train split and a manifest."""

    def write(
        directory: Path,
        documents: Sequence[Sequence[int]],
        vocab_size: int = 300,
        separator_id: int = 0,
        shard_tokens: int = 1 << 28,
    ) -> Manifest:
        directory.mkdir(exist_ok=True)
        with ShardWriter(directory, "train", vocab_size, separator_id, shard_tokens) as writer:
            for document in documents:
                writer.write_document(document, text_bytes=len(document))
        with ShardWriter(directory, "val", vocab_size, separator_id) as empty:
            pass
        manifest = Manifest(
            llamita_version="0",
            settings=settings,
            sources=[],
            stages=[],
            train=writer.counts,
            val=empty.counts,
            tokenizer=TokenizerInfo(kind="char", vocab_size=vocab_size, fingerprint="sha256:0"),
            dtype=writer.dtype,
            separator_id=separator_id,
            shards=[*writer.shards, *empty.shards],
        )
        manifest.save(directory)
        return manifest

    return write

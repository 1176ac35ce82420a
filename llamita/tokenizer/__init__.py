"""Text to token ids and back: training, loading, saving, and decoding one token at a time."""

from __future__ import annotations

from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.incremental import IncrementalDetokenizer
from llamita.tokenizer.load import load_tokenizer
from llamita.tokenizer.train import train_tokenizer

__all__ = [
    "IncrementalDetokenizer",
    "Tokenizer",
    "load_tokenizer",
    "train_tokenizer",
]

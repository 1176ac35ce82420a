"""Tokenizers without the steps that change text, for formats that have no place for them.

A GGUF file holds no normalizer. NFC changes next to no text that people type, and llama.cpp's own
converter passes over it; other steps (NFKC, dropped spaces, lower case) give other ids for plain
texts, so leaving them out is for the user to decide.
"""

from __future__ import annotations

from typing import Any

from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.definition import SPACE_TO_MARK, flatten
from llamita.tokenizer.files import TOKENIZER_MODEL
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.scored_pieces import PREPEND, pieces_behind
from llamita.tokenizer.spm import SentencePieceTokenizer

_OF_SPACES = (SPACE_TO_MARK, PREPEND)


def normalizer_steps(tokenizer: Tokenizer) -> list[str]:
    """The names of the steps that change text before it is tokenized; marks of spaces are none."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        spec = tokenizer.proto.normalizer_spec
        names = [spec.name or "Precompiled"] if spec.precompiled_charsmap else []
        return names + (["remove_extra_whitespaces"] if spec.remove_extra_whitespaces else [])
    if isinstance(tokenizer, HFTokenizer):
        steps = flatten(tokenizer.definition().get("normalizer"), "normalizers")
        return [step["type"] for step in steps if step not in _OF_SPACES]
    return []


def without_normalizer(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer for texts that its normalizer leaves as they are, without it."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return _plain_model(tokenizer, tokenizer.proto)
    if not isinstance(tokenizer, HFTokenizer):
        return tokenizer
    proto = pieces_behind(tokenizer)
    if proto is not None:
        return _plain_model(tokenizer, proto)
    definition = tokenizer.definition()
    steps = flatten(definition.get("normalizer"), "normalizers")
    kept = [step for step in steps if step in _OF_SPACES]
    normalizer = {"type": "Sequence", "normalizers": kept} if kept else None
    definition = {**definition, "normalizer": normalizer}
    files = {name: data for name, data in tokenizer.side_files.items() if name != TOKENIZER_MODEL}
    return HFTokenizer(definition, files, path=tokenizer.path)


def _plain_model(tokenizer: SentencePieceTokenizer | HFTokenizer, proto: Any) -> Tokenizer:
    copy = type(proto)()
    copy.CopyFrom(proto)
    copy.normalizer_spec.name = "identity"
    copy.normalizer_spec.precompiled_charsmap = b""
    copy.normalizer_spec.remove_extra_whitespaces = False
    files = {name: data for name, data in tokenizer.side_files.items() if name != TOKENIZER_MODEL}
    return SentencePieceTokenizer(copy.SerializeToString(), files, path=tokenizer.path)

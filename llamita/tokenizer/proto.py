"""SentencePiece models made of plain tables: the protobuf message behind a `.model` file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from llamita.formats.vocabulary import BYTE, USER_DEFINED
from llamita.tokenizer.surface import SPACE_MARK

_BPE = 2


@dataclass(frozen=True)
class Piece:
    """One token: its text, its score, and its type as SentencePiece and GGUF number it."""

    text: str
    score: float
    type: int


def build_bpe_model(
    pieces: Sequence[Piece],
    *,
    unk_id: int,
    bos_id: int | None,
    eos_id: int | None,
    pad_id: int | None,
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool = False,
) -> bytes:
    """The bytes of a SentencePiece BPE model that normalizes nothing but spaces."""
    proto: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    for piece in pieces:
        proto.pieces.add(piece=piece.text, score=piece.score, type=piece.type)
    trainer = proto.trainer_spec
    trainer.model_type = _BPE
    trainer.vocab_size = len(pieces)
    trainer.byte_fallback = any(piece.type == BYTE for piece in pieces)
    trainer.split_digits = True
    for role, token_id in (("unk", unk_id), ("bos", bos_id), ("eos", eos_id), ("pad", pad_id)):
        setattr(trainer, f"{role}_id", -1 if token_id is None else token_id)
        if token_id is not None:
            setattr(trainer, f"{role}_piece", pieces[token_id].text)
    normalizer = proto.normalizer_spec
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = add_dummy_prefix
    normalizer.remove_extra_whitespaces = remove_extra_whitespaces
    normalizer.escape_whitespaces = True
    model: bytes = proto.SerializeToString()
    return model


def parse_model(model: bytes) -> Any:
    """The message behind the bytes of a model that is known to be one."""
    return sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]


def piece_text(token: str, token_type: int) -> str:
    """A token of a GGUF table as SentencePiece writes it: user-defined ones hold plain spaces."""
    return token.replace(" ", SPACE_MARK) if token_type == USER_DEFINED else token


def table_text(piece: str, token_type: int) -> str:
    """The inverse of `piece_text`."""
    return piece.replace(SPACE_MARK, " ") if token_type == USER_DEFINED else piece

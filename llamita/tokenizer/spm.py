"""Tokenizers defined by a SentencePiece `.model` file alone (Hermes, Llama 1 and 2).

SentencePiece matches user-defined symbols such as `<|im_start|>` in any text. Text is therefore
encoded by a copy of the model in which they are control symbols, which never match; the ids stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from llamita.errors import TokenizerError
from llamita.files import parse_json
from llamita.formats.vocabulary import BYTE, CONTROL, UNKNOWN, USER_DEFINED
from llamita.tokenizer.base import Tokenizer, check_unicode
from llamita.tokenizer.convert import convert_model
from llamita.tokenizer.definition import check_vocabulary
from llamita.tokenizer.files import (
    TOKENIZER_JSON,
    TOKENIZER_MODEL,
    tokenizer_config,
)
from llamita.tokenizer.special import token_name
from llamita.tokenizer.surface import SPACE_MARK, piece_bytes

ENDOFTEXT = "<|endoftext|>"
ADDED_TOKENS = "added_tokens.json"
LONGEST_PIECE = 4096
"""Characters: what is learned has 16, and no control token comes near."""


class SentencePieceTokenizer(Tokenizer):
    """A tokenizer over the bytes of a SentencePiece model.

    `files` are the files beside it by name, as in `HFTokenizer`; `tokenizer_config.json` may say
    `add_bos_token` (default: yes, where there is a BOS, as Llama does) and `add_eos_token`, and
    `added_tokens.json` may hold tokens with ids beyond the model's.
    """

    def __init__(
        self,
        model: bytes,
        files: Mapping[str, bytes] | None = None,
        *,
        path: Path = Path(TOKENIZER_MODEL),
    ) -> None:
        self._model = model
        self.side_files = dict(files or {})
        self.path = path
        self.proto = _parse(model, path)
        self._config = self._read_json("tokenizer_config.json")
        added = self._read_json(ADDED_TOKENS)
        check_vocabulary(added, path.parent / ADDED_TOKENS)
        self._added = {
            name: token_id for name, token_id in added.items() if token_id >= len(self.proto.pieces)
        }
        self.kind = "unigram" if self.proto.trainer_spec.model_type == 1 else "spm"
        self.vocab_size = max([len(self.proto.pieces) - 1, *self._added.values()]) + 1
        self.special_tokens = {
            piece.piece: index
            for index, piece in enumerate(self.proto.pieces)
            if piece.type in (CONTROL, UNKNOWN) or _is_user_symbol(piece)
        } | self._added
        self._processor = _text_processor(self.proto, path)
        self._read_roles()
        normalizer = self.proto.normalizer_spec
        self.strips_leading_space = (
            normalizer.add_dummy_prefix or normalizer.remove_extra_whitespaces
        )
        self.lossy = self._loss()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        check_unicode(texts)
        ids: list[list[int]] = self._processor.encode(list(texts), out_type=int, num_threads=-1)
        return ids

    def files(self) -> dict[str, bytes]:
        names = self._special_names
        standard = json.loads(
            tokenizer_config(
                bos_token=_name(names, self.bos_token_id),
                eos_token=_name(names, self.eos_token_id),
                pad_token=_name(names, self.pad_token_id),
                unk_token=_name(names, self.proto.trainer_spec.unk_id),
                add_bos=self.add_bos,
            )
        )
        config = json.dumps({**self._config, **standard}, indent=2, ensure_ascii=False)
        definition = json.dumps(self.definition(), indent=2, ensure_ascii=False)
        return {
            **self.side_files,
            TOKENIZER_JSON: definition.encode(),
            TOKENIZER_MODEL: self._model,
            "tokenizer_config.json": config.encode(),
        }

    def _with_added(self, names: Sequence[str]) -> SentencePieceTokenizer:
        for name in names:
            if name in self.pieces:
                raise TokenizerError(
                    f"{name} is ordinary text in the SentencePiece model {self.path}, and cannot "
                    "be made a control token.",
                    hint="Choose a chat format whose control tokens it has.",
                )
        ids = {name: self.vocab_size + number for number, name in enumerate(names)}
        added = json.dumps({**self._added, **ids}, indent=2, ensure_ascii=False)
        files = {**self.side_files, ADDED_TOKENS: added.encode()}
        return SentencePieceTokenizer(self._model, files, path=self.path)

    @property
    def model(self) -> bytes:
        """The SentencePiece model."""
        return self._model

    @cached_property
    def pieces(self) -> dict[str, int]:
        """The ids of the model's pieces, without what was added beside it."""
        return {piece.piece: index for index, piece in enumerate(self.proto.pieces)}

    def _set_files(self, files: Mapping[str, bytes]) -> None:
        self.side_files = files
        self._config = self._read_json("tokenizer_config.json")

    def definition(self) -> dict[str, Any]:
        return self._converted

    @cached_property
    def _converted(self) -> dict[str, Any]:
        return convert_model(
            self.proto, self.special_tokens, self.bos_prefix, self.eos_suffix, self.path
        )

    def _token_surface(self, token_id: int) -> bytes:
        if token_id >= len(self.proto.pieces):
            return b""
        return piece_bytes(self.proto.pieces[token_id].piece, space_mark=True)

    def _read_roles(self) -> None:
        trainer = self.proto.trainer_spec
        self.bos_token_id = self._role("bos", trainer.bos_id)
        self.eos_token_id = self._role("eos", trainer.eos_id)
        self.pad_token_id = self._role("pad", trainer.pad_id)
        if self.eos_token_id is None and self.special_tokens.get(ENDOFTEXT) == self.bos_token_id:
            self.eos_token_id = self.bos_token_id
        add_bos = bool(self._config.get("add_bos_token", True)) and self.bos_token_id is not None
        add_eos = bool(self._config.get("add_eos_token", False)) and self.eos_token_id is not None
        self.bos_prefix = [self.bos_token_id] if add_bos and self.bos_token_id is not None else []
        self.eos_suffix = [self.eos_token_id] if add_eos and self.eos_token_id is not None else []

    def _role(self, role: str, model_id: int) -> int | None:
        """The id of a role's token: as tokenizer_config.json names it, else as the model has it."""
        name = token_name(self._config.get(f"{role}_token"))
        if name is not None and name in self.special_tokens:
            return self.special_tokens[name]
        in_model = 0 <= model_id < len(self.proto.pieces)
        return model_id if in_model and self.is_special(model_id) else None

    def _loss(self) -> str | None:
        normalizer = self.proto.normalizer_spec
        if normalizer.precompiled_charsmap:
            return f"its normalizer ({normalizer.name}) changes text"
        if normalizer.remove_extra_whitespaces:
            return "it drops repeated spaces"
        if sum(piece.type == BYTE for piece in self.proto.pieces) < 256:
            return "it has no byte fallback: characters it does not know become unknown"
        return None

    def _read_json(self, name: str) -> dict[str, Any]:
        if name not in self.side_files:
            return {}
        content = parse_json(self.side_files[name], self.path.parent / name, TokenizerError)
        if not isinstance(content, dict):
            raise TokenizerError(f"{self.path.parent / name} holds no JSON object.")
        return content


def _parse(model: bytes, path: Path) -> Any:
    """The model's protobuf message. A file cut between two fields still parses, so look inside."""
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        proto.ParseFromString(model)
    except Exception as error:  # DecodeError has several homes in the versions of protobuf
        raise TokenizerError(f"{path} is no SentencePiece model: {error}.") from error
    if not proto.pieces or not proto.HasField("normalizer_spec"):
        raise TokenizerError(f"{path} is no whole SentencePiece model: it may be cut off.")
    for index, piece in enumerate(proto.pieces):
        # What is no UTF-8 comes as bytes.
        if not isinstance(piece.piece, str) or len(piece.piece) > LONGEST_PIECE:
            raise TokenizerError(
                f"{path} is a damaged SentencePiece model: its piece {index} is no text of at most "
                f"{LONGEST_PIECE} characters."
            )
    if not 0 <= proto.trainer_spec.unk_id < len(proto.pieces):
        raise TokenizerError(
            f"{path} is a damaged SentencePiece model: its unk_id is {proto.trainer_spec.unk_id}, "
            f"and it has {len(proto.pieces)} pieces."
        )
    return proto


def _text_processor(proto: Any, path: Path) -> SentencePieceProcessor:
    """A processor in which no symbol matches in text that is not text."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    for piece in copy.pieces:
        if _is_user_symbol(piece):
            piece.type = CONTROL
    try:
        return SentencePieceProcessor(model_proto=copy.SerializeToString())
    except Exception as error:  # RuntimeError or OSError, by version
        raise TokenizerError(f"{path} is a damaged SentencePiece model: {error}.") from error


def _is_user_symbol(piece: Any) -> bool:
    """Whether a piece is a user-defined symbol; runs of white space (Gemma has them) are text."""
    return piece.type == USER_DEFINED and bool(piece.piece.replace(SPACE_MARK, " ").strip())


def _name(names: Mapping[int, str], token_id: int | None) -> str | None:
    return None if token_id is None else names.get(token_id)

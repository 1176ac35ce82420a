"""A SentencePiece model as the content of a `tokenizer.json`.

`transformers`, and everything else built on the `tokenizers` library, reads that. A SentencePiece
BPE model stores no merges: a piece comes about from any two pieces that join to it, and the piece
with the higher score is made first, so the merges are all such pairs in the order of the scores.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llamita.errors import TokenizerError
from llamita.formats.vocabulary import NORMAL, USER_DEFINED
from llamita.tokenizer.definition import BYTE_TOKEN_GUARD, OUTER_SPACES, SPACE_TO_MARK
from llamita.tokenizer.surface import SPACE_MARK

_UNIGRAM, _BPE, _CHAR = 1, 2, 4
BYTE_LEVEL_DECODER = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}


def convert_model(
    proto: Any,
    special_tokens: Mapping[str, int],
    prefix: list[int],
    suffix: list[int],
    path: Path,
) -> dict[str, Any]:
    """The tokenizer.json of a parsed SentencePiece `ModelProto`.

    `special_tokens` become added tokens, also those that `proto` does not have itself; `prefix`
    and `suffix` are ids of control tokens that frame a text.
    """
    if (
        proto.trainer_spec.treat_whitespace_as_suffix
        or not proto.normalizer_spec.escape_whitespaces
    ):
        raise TokenizerError(f"{path} treats spaces in a way that a tokenizer.json cannot express.")
    model_type = proto.trainer_spec.model_type
    if model_type == _UNIGRAM:
        model = _unigram(proto)
    elif model_type in (_BPE, _CHAR):
        model = _bpe(proto)
    else:
        raise TokenizerError(f"{path} is a SentencePiece word model, which is not supported.")
    guarded = model_type == _UNIGRAM and proto.trainer_spec.byte_fallback
    plain = {
        piece.piece: index
        for index, piece in enumerate(proto.pieces)
        if piece.type == USER_DEFINED and piece.piece not in special_tokens
    }
    added = [added_token(name, token_id, True) for name, token_id in special_tokens.items()]
    added += [added_token(name, token_id, False) for name, token_id in plain.items()]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": _normalizer(proto.normalizer_spec),
        "pre_tokenizer": _sequence("pretokenizers", [BYTE_TOKEN_GUARD]) if guarded else None,
        "post_processor": template(
            {token_id: name for name, token_id in special_tokens.items()}, prefix, suffix
        ),
        "decoder": _decoder(proto),
        "model": model,
    }


def template(names: Mapping[int, str], prefix: list[int], suffix: list[int]) -> dict[str, Any]:
    """A post-processor that puts the tokens `prefix` before and `suffix` behind each text."""

    def framed(sequence: str, type_id: int) -> list[dict[str, Any]]:
        def special(token_id: int) -> dict[str, Any]:
            return {"SpecialToken": {"id": names[token_id], "type_id": type_id}}

        text = {"Sequence": {"id": sequence, "type_id": type_id}}
        return [*map(special, prefix), text, *map(special, suffix)]

    return {
        "type": "TemplateProcessing",
        "single": framed("A", 0),
        "pair": framed("A", 0) + framed("B", 1),
        "special_tokens": {
            names[token_id]: {"id": names[token_id], "ids": [token_id], "tokens": [names[token_id]]}
            for token_id in dict.fromkeys([*prefix, *suffix])
        },
    }


def _bpe(proto: Any) -> dict[str, Any]:
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == NORMAL}
    ranked = [
        (-score, piece[:cut], piece[cut:])
        for piece, score in scores.items()
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    ranked.sort(key=lambda entry: entry[0])
    fallback = proto.trainer_spec.byte_fallback
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": proto.pieces[proto.trainer_spec.unk_id].piece,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": fallback,
        "ignore_merges": False,
        "vocab": {piece.piece: index for index, piece in enumerate(proto.pieces)},
        "merges": [[left, right] for _, left, right in ranked],
    }


def _unigram(proto: Any) -> dict[str, Any]:
    return {
        "type": "Unigram",
        "unk_id": proto.trainer_spec.unk_id,
        "vocab": [[piece.piece, piece.score] for piece in proto.pieces],
        "byte_fallback": proto.trainer_spec.byte_fallback,
    }


def _normalizer(spec: Any) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    if spec.precompiled_charsmap:
        charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if spec.remove_extra_whitespaces:
        # Spaces alone: a Strip would take tabs and line ends as well.
        steps.append({"type": "Replace", "pattern": {"Regex": OUTER_SPACES}, "content": ""})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    if spec.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": SPACE_MARK})
    return _sequence("normalizers", [*steps, SPACE_TO_MARK])


def _decoder(proto: Any) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "}
    ]
    if proto.trainer_spec.byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if proto.normalizer_spec.add_dummy_prefix or proto.normalizer_spec.remove_extra_whitespaces:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return _sequence("decoders", steps)


def _sequence(members: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "Sequence", members: steps}


def added_token(content: str, token_id: int, special: bool) -> dict[str, Any]:
    """An entry of `added_tokens`: a control token if `special`, else text that is one token."""
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": not special,
        "special": special,
    }


def bpe_definition(
    vocabulary: Mapping[str, int],
    merges: Sequence[str | Sequence[str]],
    added_tokens: list[dict[str, Any]],
    *,
    normalizer: dict[str, Any] | None = None,
    pre_tokenizer: dict[str, Any] | None = None,
    post_processor: dict[str, Any] | None = None,
    decoder: dict[str, Any] | None = None,
    unk_token: str | None = None,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    """A tokenizer.json of tables: byte-level BPE, unless another `decoder` is given."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder or BYTE_LEVEL_DECODER,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unk_token,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": ignore_merges,
            "vocab": vocabulary,
            "merges": merges,
        },
    }

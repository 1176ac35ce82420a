"""Reading a `tokenizer.json`: what kind it is, how its tokens decode, what it may lose.

A tokenizer.json is a small pipeline (normalizer, pre-tokenizer, model, decoder). llamita needs the
exact bytes of every token on its own, which byte-level and byte-fallback pipelines have and others
(WordPiece, CTC) have not: those are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamita.errors import TokenizerError
from llamita.tokenizer.surface import BYTE_CHARACTERS, BYTE_TOKENS, SPACE_MARK, looks_like_control

MAX_TOKEN_ID = (1 << 22) - 1
"""Tables are as long as the largest id; the largest vocabularies in use have a quarter million."""

_DECODERS = {"ByteLevel", "ByteFallback", "Metaspace", "Replace", "Fuse", "Strip"}
BYTE_TOKEN_GUARD = {
    "type": "Split",
    "pattern": {"Regex": "<(?=0x[0-9A-F]{2}>)"},
    "behavior": "Isolated",
    "invert": False,
}
OUTER_SPACES = r"\A +| +\z"
_SPACES = re.compile(rf"[ {SPACE_MARK}]+(\{{2,\}}|\+)?")
SPACE_TO_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}


@dataclass(frozen=True)
class Pipeline:
    """What llamita needs to know of a tokenizer.json."""

    kind: str
    byte_level: bool
    space_mark: bool
    strips_leading_space: bool
    vocabulary: dict[str, int]
    special_tokens: dict[str, int]
    plain_added_ids: frozenset[int]
    lossy: str | None


def read_pipeline(definition: Any, path: Path) -> Pipeline:
    """Understand the content of a tokenizer.json, or refuse it naming `path`."""
    if not isinstance(definition, dict) or not isinstance(definition.get("model"), dict):
        raise TokenizerError(
            f"{path} is no tokenizer.json of the tokenizers library: it has no model."
        )
    try:
        return _read_pipeline(definition, path)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise TokenizerError(f"{path} is a damaged tokenizer.json ({error!r}).") from error


def _read_pipeline(definition: dict[str, Any], path: Path) -> Pipeline:
    model = definition["model"]
    model_type = model.get("type") or ("Unigram" if "unk_id" in model else "BPE")
    if model_type not in ("BPE", "Unigram"):
        raise TokenizerError(
            f"{path} is a {model_type} tokenizer, which llamita cannot use: the exact bytes of its "
            "tokens are not known.",
            hint="Tokenizers of the kinds byte-level BPE, SentencePiece BPE and unigram work.",
        )
    decoders = list(flatten(definition.get("decoder"), "decoders"))
    types = {decoder["type"] for decoder in decoders}
    if not decoders or types - _DECODERS:
        named = ", ".join(sorted(types - _DECODERS)) or "none"
        raise TokenizerError(
            f"{path} has a decoder that llamita cannot use ({named}): the exact bytes of its "
            "tokens are not known.",
            hint="Decoders of the kinds ByteLevel, ByteFallback and Metaspace work.",
        )
    byte_level = "ByteLevel" in types
    added = definition.get("added_tokens") or []
    if model_type == "Unigram":
        vocabulary = {entry[0]: index for index, entry in enumerate(model["vocab"])}
    else:
        vocabulary = dict(model["vocab"])
    vocabulary |= {token["content"]: token["id"] for token in added}
    check_vocabulary(vocabulary, path)
    special = {token["content"]: token["id"] for token in added if is_control(token)}
    plain = frozenset(token["id"] for token in added if not is_control(token))
    if model_type == "Unigram":
        kind = "unigram"
    elif byte_level:
        kind = "bpe"
    else:
        kind = "spm" if model.get("merges") else "char"
    return Pipeline(
        kind=kind,
        byte_level=byte_level,
        space_mark=any(
            decoder["type"] == "Metaspace"
            or (decoder["type"] == "Replace" and decoder["pattern"] == {"String": SPACE_MARK})
            for decoder in decoders
        ),
        strips_leading_space=any(_strips_leading_space(decoder) for decoder in decoders),
        vocabulary=vocabulary,
        special_tokens=dict(sorted(special.items(), key=lambda item: item[1])),
        plain_added_ids=plain,
        lossy=_loss(definition, byte_level, vocabulary),
    )


def check_vocabulary(vocabulary: Mapping[str, Any], path: Path) -> None:
    """Refuse ids that no vocabulary has, naming the token."""
    for token, token_id in vocabulary.items():
        if not isinstance(token_id, int) or not 0 <= token_id <= MAX_TOKEN_ID:
            raise TokenizerError(
                f"{path} gives the token {token!r} the id {token_id!r}.",
                hint=f"Ids are whole numbers from 0 to {MAX_TOKEN_ID:,}.",
            )


def flatten(stage: dict[str, Any] | None, members: str) -> Iterator[dict[str, Any]]:
    """The single steps of a stage that may be a (nested) Sequence, or absent."""
    if stage is None:
        return
    if stage["type"] == "Sequence":
        for step in stage[members]:
            yield from flatten(step, members)
    else:
        yield stage


def text_changes(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of the normalizer, without those that only add, drop or mark spaces."""
    steps = flatten(definition.get("normalizer"), "normalizers")
    return [step for step in steps if not _is_of_spaces(step)]


def is_control(added_token: dict[str, Any]) -> bool:
    """Whether an entry of `added_tokens` is a control token."""
    return bool(added_token.get("special")) or looks_like_control(added_token["content"])


def for_text(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition with which text is encoded: nothing cut or padded, control tokens marked.

    A unigram model would match its control tokens in text like any other piece, so they get names
    of private characters; where it has byte fallback, the text `<0x41>` would match the token of
    that byte, so such text is split after its first character.
    """
    added = [
        {**token, "special": is_control(token)} for token in definition.get("added_tokens", [])
    ]
    changed = {**definition, "added_tokens": added, "truncation": None, "padding": None}
    model = definition["model"]
    if "unk_id" in model:
        control = {token["id"] for token in added if token["special"]}
        changed["added_tokens"] = [
            {**token, "content": _private_name(token["id"])} if token["special"] else token
            for token in added
        ]
        vocabulary = [
            [_private_name(index) if index in control else piece, score]
            for index, (piece, score) in enumerate(model["vocab"])
        ]
        changed["model"] = {**model, "vocab": vocabulary}
    if "unk_id" in model and model.get("byte_fallback"):
        steps = list(flatten(definition.get("pre_tokenizer"), "pretokenizers"))
        if BYTE_TOKEN_GUARD not in steps:
            steps.append(BYTE_TOKEN_GUARD)
        changed["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    return changed


def _private_name(token_id: int) -> str:
    return f"\uf8ff{token_id}\uf8ff"


def _is_of_spaces(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":
        if step["pattern"] == {"Regex": OUTER_SPACES}:
            return not step["content"]
        [pattern] = step["pattern"].values()
        return bool(_SPACES.fullmatch(pattern)) and not step["content"].strip(" " + SPACE_MARK)
    return step["type"] == "Strip" or step == {"type": "Prepend", "prepend": SPACE_MARK}


def _strips_leading_space(decoder: dict[str, Any]) -> bool:
    if decoder["type"] == "Metaspace":
        scheme = decoder.get("prepend_scheme")
        return bool(decoder.get("add_prefix_space", True)) if scheme is None else scheme != "never"
    return (
        decoder["type"] == "Strip" and decoder.get("content") == " " and decoder.get("start") == 1
    )


def _loss(definition: dict[str, Any], byte_level: bool, vocabulary: dict[str, int]) -> str | None:
    """Why text may not survive encoding and decoding, or None."""
    for step in flatten(definition.get("normalizer"), "normalizers"):
        if step["type"] == "Prepend" or step == SPACE_TO_MARK:
            continue
        return f"its normalizer ({step['type']}) changes text"
    for step in flatten(definition.get("pre_tokenizer"), "pretokenizers"):
        if step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never":
            return "it drops one space at the beginning of text"
        if step["type"] == "ByteLevel" and step.get("add_prefix_space"):
            return "it adds a space at the beginning of text"
    units = BYTE_CHARACTERS if byte_level else BYTE_TOKENS
    if not byte_level and not definition["model"].get("byte_fallback"):
        return "it has no byte fallback: characters it does not know become unknown"
    missing = sum(unit not in vocabulary for unit in units)
    return f"{missing} of the 256 bytes have no token" if missing else None

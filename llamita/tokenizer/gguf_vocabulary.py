"""Tokenizers out of GGUF's tables and back into them.

`from_vocabulary` refuses what it cannot follow exactly. Tokens that a file calls user-defined match
in text, also in llama.cpp; those that look like control tokens (`<tool_call>`) do not match here,
so that no message can hold one. `to_vocabulary` writes every such token as a control token, which
llama.cpp leaves alone unless it is asked to parse special tokens.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llamita.errors import TokenizerError
from llamita.formats.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
    padding_name,
)
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.convert import added_token, bpe_definition, template
from llamita.tokenizer.files import tokenizer_config
from llamita.tokenizer.gguf_pre import BY_NAME, PreTokenizer, pre_tokenizer_steps
from llamita.tokenizer.gguf_tables import to_vocabulary
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.proto import Piece, build_bpe_model, piece_text
from llamita.tokenizer.spm import SentencePieceTokenizer
from llamita.tokenizer.surface import BYTE_TOKENS

__all__ = ["from_vocabulary", "to_vocabulary"]

_ROLES = ("bos", "eos", "pad", "unk")
_TEMPLATE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def from_vocabulary(vocabulary: Vocabulary, path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file; `path` names the file in errors.

    Raises:
        TokenizerError: the model or the pre-tokenizer is not known, or the tables are damaged.
    """
    if vocabulary.model not in ("gpt2", "llama"):
        raise TokenizerError(
            f"{path} has a tokenizer of the model {vocabulary.model!r}, which llamita cannot use.",
            hint="GGUF tokenizers of the models gpt2 and llama work. "
            "Give the model's own tokenizer with --tokenizer PATH.",
        )
    types = _token_types(vocabulary, path)
    _check_tables(vocabulary, types, path)
    if vocabulary.model == "gpt2":
        return _byte_level(vocabulary, types, path)
    return _sentencepiece(vocabulary, types, path)


def _byte_level(vocabulary: Vocabulary, types: Sequence[int], path: Path) -> Tokenizer:
    if vocabulary.merges is None:
        raise TokenizerError(f"{path} is damaged: its gpt2 tokenizer has no merges.")
    known = _pre_tokenizer(vocabulary.pre, path)
    tokens = vocabulary.tokens
    ids = {
        token: token_id
        for token_id, token in enumerate(tokens)
        if types[token_id] != UNUSED or token != padding_name(token_id)
    }
    added = [
        added_token(tokens[token_id], token_id, token_type != USER_DEFINED)
        for token_id, token_type in enumerate(types)
        if token_type in (CONTROL, UNKNOWN, USER_DEFINED)
    ]
    roles = vocabulary.ids or {}
    add_bos = known.add_bos if vocabulary.add_bos is None else vocabulary.add_bos
    prefix = _frame(vocabulary, "bos", add_bos, path)
    suffix = _frame(vocabulary, "eos", bool(vocabulary.add_eos), path)
    definition = bpe_definition(
        ids,
        vocabulary.merges,
        added,
        pre_tokenizer=pre_tokenizer_steps(known),
        post_processor=template({i: tokens[i] for i in roles.values()}, prefix, suffix),
        ignore_merges=known.ignore_merges,
    )
    files = _side_files(vocabulary, roles, bool(prefix), bool(suffix), path)
    try:
        return HFTokenizer(definition, files, path=path)
    except TokenizerError:
        _check_merges(definition["model"]["merges"], ids, path)
        raise


def _sentencepiece(vocabulary: Vocabulary, types: list[int], path: Path) -> Tokenizer:
    if vocabulary.scores is None:
        raise TokenizerError(f"{path} is damaged: its llama tokenizer has no scores.")
    size = len(types)
    roles = {role: i for role, i in (("unk", 0), ("bos", 1), ("eos", 2)) if i < size} | (
        vocabulary.ids or {}
    )
    unknown = [token_id for token_id, token_type in enumerate(types) if token_type == UNKNOWN]
    if len(unknown) > 1 or (not unknown and types[roles["unk"]] not in (NORMAL, CONTROL)):
        raise TokenizerError(
            f"{path} is damaged: {len(unknown)} of its tokens stand for what is unknown, not one."
        )
    if unknown:
        roles["unk"] = unknown[0]
    types[roles["unk"]] = UNKNOWN
    pieces = [
        Piece(piece_text(token, token_type), score, token_type)
        for token, score, token_type in zip(
            vocabulary.tokens, vocabulary.scores, types, strict=True
        )
    ]
    while pieces[-1].type == UNUSED and pieces[-1].text == padding_name(len(pieces) - 1):
        pieces.pop()  # they only fill the rows of an embedding
    add_bos = True if vocabulary.add_bos is None else vocabulary.add_bos
    prefix = _frame(vocabulary, "bos", add_bos and "bos" in roles, path, default=1)
    suffix = _frame(vocabulary, "eos", bool(vocabulary.add_eos), path, default=2)
    add_space = vocabulary.add_space_prefix
    model = build_bpe_model(
        pieces,
        unk_id=roles["unk"],
        bos_id=roles.get("bos"),
        eos_id=roles.get("eos"),
        pad_id=roles.get("pad"),
        add_dummy_prefix=True if add_space is None else add_space,
        remove_extra_whitespaces=bool(vocabulary.remove_extra_whitespaces),
    )
    files = _side_files(vocabulary, roles, bool(prefix), bool(suffix), path)
    return SentencePieceTokenizer(model, files, path=path)


def _token_types(vocabulary: Vocabulary, path: Path) -> list[int]:
    """The type of each token; where the file has none, told by roles and by the names of bytes."""
    tokens = vocabulary.tokens
    if vocabulary.types is not None:
        types = list(vocabulary.types)
    else:
        bytes_ = set(BYTE_TOKENS) if vocabulary.model == "llama" else set()
        types = [BYTE if token in bytes_ else NORMAL for token in tokens]
    for name, table in (("types", types), ("scores", vocabulary.scores)):
        if table is not None and len(table) != len(tokens):
            raise TokenizerError(
                f"{path} is damaged: it has {len(tokens):,} tokens and {len(table):,} {name}."
            )
    for role, token_id in (vocabulary.ids or {}).items():
        if not 0 <= token_id < len(tokens):
            raise TokenizerError(
                f"{path} is damaged: its {role} token has the id {token_id}, "
                f"and it has {len(tokens):,} tokens."
            )
        if types[token_id] in (NORMAL, UNUSED):  # whatever has a role steers the model
            types[token_id] = UNKNOWN if role == "unk" else CONTROL
    if vocabulary.types is None and vocabulary.model == "llama" and not vocabulary.ids:
        types[:3] = [UNKNOWN, CONTROL, CONTROL][: len(types)]
    return types


def _check_tables(vocabulary: Vocabulary, types: Sequence[int], path: Path) -> None:
    tokens = vocabulary.tokens
    if not tokens:
        raise TokenizerError(f"{path} is damaged: its tokenizer has no tokens.")
    wrong = next((i for i, kind in enumerate(types) if not NORMAL <= kind <= BYTE), None)
    if wrong is not None:
        raise TokenizerError(
            f"{path} is damaged: the token {tokens[wrong]!r} has the type {types[wrong]}."
        )
    if len(set(tokens)) != len(tokens):
        first: dict[str, int] = {}
        for token_id, token in enumerate(tokens):
            if first.setdefault(token, token_id) != token_id:
                raise TokenizerError(
                    f"{path} is damaged: the token {token!r} has two ids, "
                    f"{first[token]} and {token_id}."
                )
    if "" in tokens:
        raise TokenizerError(f"{path} is damaged: token {tokens.index('')} is empty.")
    if not all(map(math.isfinite, vocabulary.scores or ())):
        raise TokenizerError(f"{path} is damaged: scores of its tokens are no numbers.")
    byte_names = set(BYTE_TOKENS)
    for token, token_type in zip(tokens, types, strict=True):
        if token_type == BYTE and token not in byte_names:
            raise TokenizerError(f"{path} is damaged: {token!r} is no name of a byte.")


def _pre_tokenizer(name: str | None, path: Path) -> PreTokenizer:
    known = BY_NAME.get(name or "default")
    if known is None:
        raise TokenizerError(
            f"{path} splits text in a way llamita does not know (tokenizer.ggml.pre {name!r}).",
            hint="Give the model's own tokenizer.json with --tokenizer PATH. "
            f"Known are: {', '.join(BY_NAME)}.",
        )
    return known


def _check_merges(merges: list[str], ids: dict[str, int], path: Path) -> None:
    """Say which merge the library refused; it looks at each of them as well."""
    for merge in merges:
        left, _, right = merge.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise TokenizerError(
                f"{path} is damaged: the merge {merge!r} names what is no token.",
                hint="A merge is two tokens with a space between them, which join to a third.",
            )


def _frame(
    vocabulary: Vocabulary, role: str, wanted: bool, path: Path, default: int | None = None
) -> list[int]:
    """The ids that `add_special_tokens` puts on one side of a text."""
    if not wanted:
        return []
    token_id = (vocabulary.ids or {}).get(role, default)
    if token_id is None or token_id >= len(vocabulary.tokens):
        raise TokenizerError(
            f"{path} is damaged: add_{role} is true, and it names no {role} token."
        )
    return [token_id]


def _side_files(
    vocabulary: Vocabulary, roles: dict[str, int], add_bos: bool, add_eos: bool, path: Path
) -> dict[str, bytes]:
    names = {
        f"{role}_token": vocabulary.tokens[roles[role]] if role in roles else None
        for role in _ROLES
    }
    config: dict[str, Any] = json.loads(tokenizer_config(**names, add_bos=add_bos))
    if add_eos:
        config["add_eos_token"] = True
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    files = {"tokenizer_config.json": text.encode()}
    if vocabulary.chat_template is not None:
        files["chat_template.jinja"] = vocabulary.chat_template.encode()
    for name, chat_template in (vocabulary.chat_templates or {}).items():
        if not _TEMPLATE_NAME.fullmatch(name):  # it becomes the name of a file
            raise TokenizerError(f"{path} is damaged: it calls a chat template {name!r}.")
        files[f"additional_chat_templates/{name}.jinja"] = chat_template.encode()
    return files

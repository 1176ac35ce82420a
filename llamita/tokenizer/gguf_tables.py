"""A tokenizer as GGUF's tables, where llama.cpp does with them exactly what the tokenizer does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from llamita.errors import TokenizerError
from llamita.formats.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    PADDING_SCORE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
    padding_name,
)
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.definition import flatten, is_control
from llamita.tokenizer.gguf_pre import KNOWN, find_pre_tokenizer
from llamita.tokenizer.gguf_roles import refusal, with_roles
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.proto import table_text
from llamita.tokenizer.scored_pieces import merge_scores, pieces_behind, space_prefix
from llamita.tokenizer.spm import SentencePieceTokenizer
from llamita.tokenizer.surface import BYTE_TOKENS, SPACE_MARK

DROP_HINT = "If your texts are normalized already, leave these steps out with --drop-normalizer."


def to_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """The tables of a GGUF file, with the roles, flags and chat templates of the tokenizer.

    All tokens that never come from text are control tokens in them: llama.cpp does not match these
    in text either, unless it is asked to (`parse_special`, as its server does for prompts).

    Raises:
        TokenizerError: llama.cpp would give other ids; the message says why.
    """
    if tokenizer.kind == "unigram":
        raise TokenizerError(
            "a unigram tokenizer cannot be written as GGUF: unigram is no llama tokenizer there.",
            hint="Train the model on a tokenizer of the kind bpe or spm.",
        )
    if isinstance(tokenizer, SentencePieceTokenizer):
        tables = _pieces(tokenizer, tokenizer.proto)
    elif not isinstance(tokenizer, HFTokenizer):
        raise refusal(f"it is a {type(tokenizer).__name__}")
    elif tokenizer.kind == "bpe":
        tables = _byte_level(tokenizer)
    elif tokenizer.kind == "char":
        tables = _characters(tokenizer)
    else:
        proto = pieces_behind(tokenizer)
        tables = _merged(tokenizer) if proto is None else _pieces(tokenizer, proto)
    return with_roles(_checked(tables), tokenizer)


def _byte_level(tokenizer: HFTokenizer) -> Vocabulary:
    definition = tokenizer.definition()
    model = definition["model"]
    _check_normalizer(definition)
    known = find_pre_tokenizer(definition)
    if known is None:
        raise refusal(
            "it splits text in a way llama.cpp has no name for (the pre_tokenizer of its "
            "tokenizer.json, with ignore_merges)",
            hint="llama.cpp knows the patterns of "
            f"{', '.join(entry.names[0] for entry in KNOWN)}; `llamita tokenizer train` "
            "trains with qwen2.",
        )
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise refusal(f"its tokenizer.json sets {option} to {model[option]!r}")
    merges = [
        merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges") or []
    ]
    tokens, types = _listed(tokenizer, definition, lambda token: NORMAL)
    return Vocabulary("gpt2", tokens, pre=known.names[0], types=types, merges=merges)


def _pieces(tokenizer: Tokenizer, proto: Any) -> Vocabulary:
    """Straight from a SentencePiece model, and tokens that were added to it."""
    normalizer, trainer = proto.normalizer_spec, proto.trainer_spec
    # First, since nothing mends that.
    _check_bytes(piece.piece for piece in proto.pieces if piece.type == BYTE)
    if normalizer.precompiled_charsmap:
        name = normalizer.name or "SentencePiece"
        raise refusal(f"its normalizer ({name}) changes text", hint=DROP_HINT)
    if normalizer.remove_extra_whitespaces:
        raise refusal("it drops repeated spaces (remove_extra_whitespaces)", hint=DROP_HINT)
    if trainer.treat_whitespace_as_suffix or not normalizer.escape_whitespaces:
        raise refusal("it treats spaces in a way that GGUF has no field for")
    if trainer.model_type == 3:
        raise refusal("it is a SentencePiece word model")
    special = set(tokenizer.special_tokens.values())
    tokens, scores, types = [], [], []
    for token_id, piece in enumerate(proto.pieces):
        steers = token_id in special and piece.type not in (UNKNOWN, UNUSED)
        types.append(CONTROL if steers else piece.type)
        tokens.append(table_text(piece.piece, types[-1]))
        scores.append(piece.score)
    if USER_DEFINED in types and normalizer.add_dummy_prefix:
        raise refusal(
            "it has user-defined text symbols and puts a space in front of texts, which llama.cpp "
            "would also put behind such symbols"
        )
    added = {i: name for name, i in tokenizer.special_tokens.items() if i >= len(tokens)}
    for token_id in range(len(tokens), tokenizer.vocab_size):
        tokens.append(added.get(token_id, padding_name(token_id)))
        types.append(CONTROL if token_id in added else UNUSED)
        scores.append(PADDING_SCORE)
    return Vocabulary(
        "llama",
        tokens,
        pre="default",
        scores=scores,
        types=types,
        add_space_prefix=normalizer.add_dummy_prefix,
    )


def _merged(tokenizer: HFTokenizer) -> Vocabulary:
    """From a tokenizer.json of SentencePiece BPE, whose merges stand for scores."""
    definition = tokenizer.definition()
    add_space_prefix = space_prefix(definition)
    if add_space_prefix is None:
        raise refusal(
            "its tokenizer.json changes or splits text in a way that GGUF has no field for",
            hint="Where a tokenizer.model lies beside it, give that with --tokenizer PATH.",
        )
    _check_bytes(tokenizer.pipeline.vocabulary)
    byte_names = set(BYTE_TOKENS)
    tokens, types = _listed(
        tokenizer, definition, lambda token: BYTE if token in byte_names else NORMAL
    )
    if tokenizer.unknown_id is not None:
        types[tokenizer.unknown_id] = UNKNOWN
    if USER_DEFINED in types:
        raise refusal("tokens that are text were added to it, and llama.cpp splits at them")
    text = [token for token, kind in zip(tokens, types, strict=True) if kind == NORMAL]
    ranked = merge_scores(text, definition["model"].get("merges") or [])
    if ranked is None:
        raise refusal("its merges are in no order that scores of tokens could give")
    scores = [ranked.get(token, PADDING_SCORE) for token in tokens]
    return Vocabulary(
        "llama",
        tokens,
        pre="default",
        scores=scores,
        types=types,
        add_space_prefix=add_space_prefix,
    )


def _characters(tokenizer: HFTokenizer) -> Vocabulary:
    """Characters and bytes: a SentencePiece BPE in which no two pieces join to a third."""
    definition = tokenizer.definition()
    _check_normalizer(definition)
    vocabulary = tokenizer.pipeline.vocabulary
    _check_bytes(vocabulary)
    if definition.get("pre_tokenizer") is not None:
        raise refusal("its tokenizer.json splits text in a way that GGUF has no field for")
    if " " not in vocabulary or SPACE_MARK in vocabulary:
        raise refusal(
            f"GGUF writes a space as the character {SPACE_MARK!r}, and it has "
            f"{'that one as well' if SPACE_MARK in vocabulary else 'no token for the space'}"
        )
    byte_names = set(BYTE_TOKENS)
    tokens, types = _listed(
        tokenizer, definition, lambda token: BYTE if token in byte_names else NORMAL
    )
    tokens[vocabulary[" "]] = SPACE_MARK
    return Vocabulary(
        "llama",
        tokens,
        pre="default",
        scores=[0.0] * len(tokens),
        types=types,
        add_space_prefix=False,
    )


def _listed(
    tokenizer: HFTokenizer, definition: dict[str, Any], type_of: Callable[[str], int]
) -> tuple[list[str], list[int]]:
    """The tokens of a tokenizer.json by id, and their types; ids without a token are unused."""
    plain: dict[int, Mapping[str, Any]] = {
        token["id"]: token
        for token in definition.get("added_tokens") or []
        if not is_control(token)
    }
    for token in plain.values():
        for option in ("lstrip", "rstrip", "single_word"):
            if token.get(option):
                raise refusal(f"its token {token['content']!r} has {option}")
    special = set(tokenizer.special_tokens.values())
    tokens, types = [], []
    for token_id in range(tokenizer.vocab_size):
        name = tokenizer.token_strings.get(token_id)
        tokens.append(padding_name(token_id) if name is None else name)
        if name is None:
            types.append(UNUSED)
        elif token_id in special:
            types.append(CONTROL)
        elif token_id in plain:
            types.append(USER_DEFINED)
        else:
            types.append(type_of(name))
    return tokens, types


def _checked(tables: Vocabulary) -> Vocabulary:
    tokens = tables.tokens
    if len(set(tokens)) < len(tokens):
        raise refusal("two of its tokens have the same text, which llama.cpp does not allow")
    if any("\0" in token for token in tokens):
        raise refusal("a token holds the character U+0000, and llama.cpp reads texts up to it")
    return tables


def _check_bytes(tokens: Iterable[str]) -> None:
    missing = set(BYTE_TOKENS).difference(tokens)
    if len(missing) == len(BYTE_TOKENS):
        raise refusal("it has no tokens for single bytes, which llama.cpp needs (byte_fallback)")
    if missing:
        raise refusal(f"{len(missing)} of the 256 bytes have no token, and llama.cpp needs them")


def _check_normalizer(definition: dict[str, Any]) -> None:
    steps = list(flatten(definition.get("normalizer"), "normalizers"))
    if steps:
        raise refusal(
            f"its normalizer ({', '.join(step['type'] for step in steps)}) changes text, "
            "and llama.cpp has none",
            hint=DROP_HINT,
        )

"""A tokenizer as the files of other systems, where they hold it exactly.

Each function raises a TokenizerError that says why where the target would give other ids.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from llamita.errors import TokenizerError
from llamita.formats.vocabulary import CONTROL, UNUSED, padding_name
from llamita.tokenizer.armgpt import read_armgpt
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat_files import CONFIG
from llamita.tokenizer.files import TOKENIZER_MODEL
from llamita.tokenizer.gguf_pre import find_pre_tokenizer
from llamita.tokenizer.gguf_tables import to_vocabulary
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.proto import Piece, build_bpe_model, parse_model, piece_text
from llamita.tokenizer.scored_pieces import pieces_behind
from llamita.tokenizer.spm import SentencePieceTokenizer
from llamita.tokenizer.surface import byte_level_bytes
from llamita.tokenizer.tiktoken_ranks import (
    BEGIN,
    CONTROL_TOKENS,
    END,
    RESERVED,
    control_names,
    merges_of_ranks,
)

_ROLES = ("bos_prefix", "eos_suffix", "bos_token_id", "eos_token_id", "pad_token_id")


def sentencepiece_model(tokenizer: Tokenizer) -> bytes:
    """The tokenizer as a SentencePiece model, for Hermes, ArmGPT and Llama 2.

    The model it was read from, or one rebuilt of the same pieces, scores and types. Tokens that
    were added to the model become control pieces of it.

    Raises:
        TokenizerError: it is no SentencePiece tokenizer, or its merges are no scores.
    """
    if tokenizer.kind in ("bpe", "char"):
        what = "byte-level BPE" if tokenizer.kind == "bpe" else "characters"
        raise TokenizerError(
            f"the tokenizer ({what}) cannot be written as a SentencePiece model.",
            hint="Convert to hf or gguf, or train the model on a tokenizer of the kind spm.",
        )
    if isinstance(tokenizer, SentencePieceTokenizer):
        return _completed(tokenizer.model, tokenizer)
    assert isinstance(tokenizer, HFTokenizer)
    behind = pieces_behind(tokenizer)
    if behind is not None:
        return _completed(behind.SerializeToString(), tokenizer)
    if tokenizer.kind == "unigram":
        raise TokenizerError(
            "the tokenizer (unigram, without its tokenizer.model) cannot be written as a "
            "SentencePiece model.",
            hint="Put the tokenizer.model it was made from beside its tokenizer.json.",
        )
    tables = to_vocabulary(tokenizer)
    ids = tables.ids or {}
    assert tables.scores is not None
    assert tables.types is not None
    if "unk" not in ids:
        raise TokenizerError(
            "the tokenizer has no unknown token, without which there is no SentencePiece model.",
            hint="Convert to hf or gguf, which can hold it.",
        )
    pieces = [
        Piece(piece_text(token, token_type), score, token_type)
        for token, score, token_type in zip(tables.tokens, tables.scores, tables.types, strict=True)
    ]
    return build_bpe_model(
        pieces,
        unk_id=ids["unk"],
        bos_id=tokenizer.bos_token_id,
        eos_id=tokenizer.eos_token_id,
        pad_id=tokenizer.pad_token_id,
        add_dummy_prefix=bool(tables.add_space_prefix),
    )


def sentencepiece_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """`sentencepiece_model` as a tokenizer.model, with what is to be read beside it.

    A model alone puts its BOS in front of texts, as Llama does. Where the tokenizer frames texts
    otherwise, a tokenizer_config.json says so.

    Raises:
        TokenizerError: as above, or the two files would not be read as the same tokenizer.
    """
    files = {TOKENIZER_MODEL: sentencepiece_model(tokenizer)}
    if _roles(SentencePieceTokenizer(files[TOKENIZER_MODEL])) == _roles(tokenizer):
        return files
    frame = {
        "add_bos_token": bool(tokenizer.bos_prefix),
        "add_eos_token": bool(tokenizer.eos_suffix),
    }
    files[CONFIG] = (json.dumps(frame, indent=2) + "\n").encode()
    back = SentencePieceTokenizer(files[TOKENIZER_MODEL], {CONFIG: files[CONFIG]})
    for name, wanted, found in zip(_ROLES, _roles(tokenizer), _roles(back), strict=True):
        if found != wanted:
            raise TokenizerError(
                f"the tokenizer cannot be written as a SentencePiece model: its {name} would be "
                f"{found}, not {wanted}.",
                hint="Convert to hf, whose tokenizer.json can hold it.",
            )
    return files


def tiktoken_ranks(tokenizer: Tokenizer) -> bytes:
    """The tokenizer as the `tokenizer.model` of Meta's Llama 3: tokens in base64 and their ranks.

    Raises:
        TokenizerError: Meta's loader would read back another tokenizer.
    """
    if not isinstance(tokenizer, HFTokenizer) or tokenizer.kind != "bpe":
        raise _no_ranks(f"it is of the kind {tokenizer.kind}")
    definition = tokenizer.definition()
    known = find_pre_tokenizer(definition)
    if known is None or known.names[0] != "llama-bpe" or definition.get("normalizer") is not None:
        raise _no_ranks("it splits text in another way")
    size = tokenizer.vocab_size - CONTROL_TOKENS
    names = {token_id: name for name, token_id in tokenizer.special_tokens.items()}
    if size < 1 or sorted(names) != list(range(size, tokenizer.vocab_size)):
        raise _no_ranks(f"its control tokens are not the last {CONTROL_TOKENS} ids")
    metas = zip(control_names(scaled=False), control_names(scaled=True), strict=True)
    for token_id, fixed in enumerate(metas, size):
        # What is reserved has other numbers in Meta's and in HuggingFace's list of names.
        if names[token_id] not in fixed and not names[token_id].startswith(RESERVED):
            raise _no_ranks(f"its token {token_id} is {names[token_id]}, not {fixed[-1]}")
    if (tokenizer.bos_prefix, tokenizer.eos_suffix) != ([size], []):
        raise _no_ranks(f"it does not put {BEGIN} alone in front of texts")
    if names.get(-1 if tokenizer.eos_token_id is None else tokenizer.eos_token_id) not in (
        END,
        "<|eot_id|>",
    ):
        raise _no_ranks(f"its end-of-sequence token is neither {END} nor <|eot_id|>")
    if any(token_id not in tokenizer.token_strings for token_id in range(size)):
        raise _no_ranks("some of its ids have no token")
    surfaces = [tokenizer.token_strings[token_id] for token_id in range(size)]
    merges = [
        merge if isinstance(merge, str) else " ".join(merge)
        for merge in definition["model"].get("merges") or []
    ]
    if sorted(merges) != sorted(merges_of_ranks(surfaces)):
        raise _no_ranks("its merges are not all those that its tokens allow for")
    order = [tokenizer.pipeline.vocabulary[merge.replace(" ", "", 1)] for merge in merges]
    if order != sorted(order):
        raise _no_ranks("its merges are in another order than the ids of its tokens")
    lines = [
        base64.b64encode(byte_level_bytes(surface)) + b" %d\n" % rank
        for rank, surface in enumerate(surfaces)
    ]
    return b"".join(lines)


def armgpt_json(tokenizer: Tokenizer) -> bytes:
    """The tokenizer as ArmGPT's JSON: characters, or a SentencePiece model.

    Raises:
        TokenizerError: ArmGPT cannot hold it.
    """
    content: dict[str, Any]
    special = dict(tokenizer.special_tokens)
    if tokenizer.kind == "char":
        vocabulary = _characters(tokenizer)
        content = {
            "type": "char",
            "itos": {str(token_id): token for token, token_id in vocabulary.items()},
            "stoi": vocabulary,
            "special_tokens": special,
        }
    else:
        model = sentencepiece_model(tokenizer)
        proto = parse_model(model)
        trainer = proto.trainer_spec
        roles = {trainer.unk_id, trainer.bos_id, trainer.eos_id, trainer.pad_id}
        content = {
            "type": "bpe",
            "vocab_size": len(proto.pieces),
            "model_file": model.hex(),
            "special_tokens": {name: i for name, i in special.items() if i not in roles},
        }
    if tokenizer.bos_prefix or tokenizer.eos_suffix:
        raise TokenizerError(
            "the tokenizer cannot be written for ArmGPT: it puts control tokens around texts, and "
            "ArmGPT's has none there.",
            hint="If prompts are to do without them, set post_processor to null in its "
            "tokenizer.json (or add_bos_token to false, beside a tokenizer.model).",
        )
    back = read_armgpt(content, {}, Path("tokenizer.json"))
    for role in ("eos_token_id", "pad_token_id"):
        if getattr(back, role) != getattr(tokenizer, role):
            raise TokenizerError(
                "the tokenizer cannot be written for ArmGPT: its JSON does not say which token "
                f"has a role, and {role} would be {getattr(back, role)}, not "
                f"{getattr(tokenizer, role)}.",
                hint="Convert to hf, whose tokenizer_config.json says it.",
            )
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()


def _roles(tokenizer: Tokenizer) -> list[Any]:
    return [getattr(tokenizer, name) for name in _ROLES]


def _completed(model: bytes, tokenizer: Tokenizer) -> bytes:
    """The model with the tokens that were added to it, and with the tokenizer's own roles."""
    proto = parse_model(model)
    added = {i: name for name, i in tokenizer.special_tokens.items() if i >= len(proto.pieces)}
    size = len(proto.pieces)
    for token_id in range(size, tokenizer.vocab_size):
        kind = CONTROL if token_id in added else UNUSED
        name = added.get(token_id, padding_name(token_id))
        proto.pieces.add(piece=name, score=0.0, type=kind)
    trainer = proto.trainer_spec
    for role in ("bos", "eos", "pad"):
        token_id = getattr(tokenizer, f"{role}_token_id")
        if (trainer_id := getattr(trainer, f"{role}_id")) < 0:
            trainer_id = None
        if token_id != trainer_id:
            setattr(trainer, f"{role}_id", -1 if token_id is None else token_id)
            if token_id is not None:
                setattr(trainer, f"{role}_piece", proto.pieces[token_id].piece)
    completed: bytes = proto.SerializeToString()
    # A model in which nothing changed keeps its bytes.
    return model if completed == parse_model(model).SerializeToString() else completed


def _characters(tokenizer: Tokenizer) -> dict[str, int]:
    assert isinstance(tokenizer, HFTokenizer)
    definition = tokenizer.definition()
    if definition["model"].get("byte_fallback"):
        raise TokenizerError(
            "the tokenizer cannot be written for ArmGPT: it spells characters it does not know in "
            "bytes, and ArmGPT's table of characters has no bytes.",
            hint="Convert to hf or gguf, which can hold it.",
        )
    if definition.get("normalizer") or definition.get("pre_tokenizer"):
        raise TokenizerError(
            "the tokenizer cannot be written for ArmGPT: it changes or splits text, and ArmGPT's "
            "takes characters as they are.",
            hint="Convert to hf, whose tokenizer.json can hold it.",
        )
    return dict(sorted(tokenizer.pipeline.vocabulary.items(), key=lambda item: item[1]))


def _no_ranks(reason: str) -> TokenizerError:
    return TokenizerError(
        f"the tokenizer cannot be written as Llama 3's tokenizer.model: {reason}.",
        hint="Convert to hf or gguf, which can hold it.",
    )

"""ArmGPT's tokenizer: a JSON file with a table of characters, or with a SentencePiece model in it.

`<|user|>`, `<|assistant|>`, `<|end|>` and its other special tokens are control tokens here: they
steer the model and never come from text. No BOS is put in front of texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llamita.errors import TokenizerError
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.convert import added_token, bpe_definition
from llamita.tokenizer.definition import check_vocabulary
from llamita.tokenizer.files import tokenizer_config
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer

KINDS = ("char", "bpe")
_DOCUMENT_ENDS = ("<|endoftext|>", "<|eod|>", "<eod>", "<eos>", "</s>", "<|end|>")
_UNKNOWN = ("<unk>", "<|unk|>", "<UNK>")
_PADS = ("<pad>", "<|pad|>", "<PAD>")
_KEYS = {
    "char": {"type", "itos", "stoi", "special_tokens", "vocab_size"},
    "bpe": {"type", "vocab_size", "model_file", "special_tokens"},
}


def is_armgpt(content: Any) -> bool:
    """Whether parsed JSON is a tokenizer of ArmGPT."""
    return isinstance(content, dict) and "model" not in content and content.get("type") in KINDS


def read_armgpt(content: dict[str, Any], files: Mapping[str, bytes], path: Path) -> Tokenizer:
    """The tokenizer of a parsed JSON file; `files` are chat templates beside it.

    Raises:
        TokenizerError: it is damaged, or holds what llamita does not know.
    """
    kind = content["type"]
    unknown = sorted(set(content) - _KEYS[kind])
    if unknown:
        raise TokenizerError(
            f"{path} is a {kind} tokenizer of ArmGPT with keys llamita does not know: "
            f"{', '.join(unknown)}."
        )
    special = _special_tokens(content.get("special_tokens"), path)
    read = _read_characters if kind == "char" else _read_bpe
    return read(content, special, files, path)


def _read_characters(
    content: dict[str, Any], special: dict[str, int | None], files: Mapping[str, bytes], path: Path
) -> Tokenizer:
    vocabulary = _table(content, path)
    for name, token_id in special.items():
        if vocabulary.get(name, token_id) != token_id and token_id is not None:
            raise _damaged(path, f"{name} is {vocabulary[name]} in its table and {token_id} beside")
        if name not in vocabulary:
            if token_id is None:
                raise _damaged(path, f"its special token {name} is not in its table")
            vocabulary[name] = token_id
    size = content.get("vocab_size", len(vocabulary))
    if sorted(vocabulary.values()) != list(range(len(vocabulary))) or size != len(vocabulary):
        raise _damaged(path, f"its {len(vocabulary)} tokens do not have the ids 0 to {size} - 1")
    for name in vocabulary:
        if len(name) != 1 and name not in special:
            if name not in _UNKNOWN + _PADS + _DOCUMENT_ENDS:
                raise _damaged(path, f"{name!r} is neither one character nor a special token")
            special[name] = vocabulary[name]
    steering = {name: vocabulary[name] for name in special}
    unknown = _first(_UNKNOWN, steering)
    added = [
        added_token(name, token_id, True)
        for name, token_id in sorted(steering.items(), key=lambda item: item[1])
    ]
    definition = bpe_definition(vocabulary, [], added, decoder={"type": "Fuse"}, unk_token=unknown)
    config = tokenizer_config(
        bos_token=None,
        eos_token=_first(_DOCUMENT_ENDS, steering),
        pad_token=_first(_PADS, steering),
        unk_token=unknown,
        add_bos=False,
    )
    return HFTokenizer(
        definition,
        {**_templates(files), "tokenizer_config.json": config},
        path=path,
    )


def _read_bpe(
    content: dict[str, Any], special: dict[str, int | None], files: Mapping[str, bytes], path: Path
) -> Tokenizer:
    text = content.get("model_file")
    if not isinstance(text, str):
        raise _damaged(path, "it has no model_file")
    try:
        model = bytes.fromhex(text)
    except ValueError:
        raise _damaged(path, "its model_file is not written in hexadecimal digits") from None
    config = json.dumps({"add_bos_token": False}).encode()
    plain = SentencePieceTokenizer(model, {"tokenizer_config.json": config}, path=path)
    pieces = plain.pieces
    for name, token_id in special.items():
        if token_id is None and name not in pieces:
            raise _damaged(path, f"its special token {name} is no piece of its model")
        if token_id is not None and pieces.get(name, token_id) != token_id:
            raise _damaged(path, f"{name} is {pieces[name]} in its model and {token_id} beside")
        if name in pieces and pieces[name] not in plain.special_tokens.values():
            raise _damaged(path, f"its special token {name} is ordinary text in its model")
    added = {
        name: token_id
        for name, token_id in special.items()
        if name not in pieces and token_id is not None
    }
    expected = list(range(len(pieces), len(pieces) + len(added)))
    size = content.get("vocab_size")
    if sorted(added.values()) != expected or size not in (len(pieces), len(pieces) + len(added)):
        raise _damaged(
            path,
            f"its vocab_size is {size}; its model has {len(pieces)} pieces, and "
            f"{len(added)} special tokens stand outside with the ids {sorted(added.values())}",
        )
    side = {"tokenizer_config.json": config}
    if added:
        side["added_tokens.json"] = json.dumps(added, ensure_ascii=False).encode()
    return SentencePieceTokenizer(model, {**_templates(files), **side}, path=path)


def _table(content: dict[str, Any], path: Path) -> dict[str, int]:
    """Token to id, from `stoi`, from `itos` (a list, or an object with ids as keys), or both."""
    stoi, itos = content.get("stoi"), content.get("itos")
    tables: list[dict[str, int]] = []
    if stoi is not None:
        if not isinstance(stoi, dict):
            raise _damaged(path, "its stoi is no object")
        tables.append(dict(stoi))
    if itos is not None:
        if isinstance(itos, list):
            pairs = list(enumerate(itos))
        elif isinstance(itos, dict) and all(key.isdecimal() for key in itos):
            pairs = [(int(key), token) for key, token in itos.items()]
        else:
            raise _damaged(path, "its itos is neither a list nor an object with ids as keys")
        if not all(isinstance(token, str) for _, token in pairs):
            raise _damaged(path, "its itos holds what is no text")
        if len({token for _, token in pairs}) != len(pairs):
            raise _damaged(path, "its itos gives one token two ids")
        tables.append({token: token_id for token_id, token in pairs})
    if not tables:
        raise _damaged(path, "it has neither itos nor stoi")
    for table in tables:
        check_vocabulary(table, path)
    if any(table != tables[0] for table in tables):
        raise _damaged(path, "its itos and stoi differ")
    if "" in tables[0]:
        raise _damaged(path, "it has an empty token")
    return tables[0]


def _special_tokens(value: Any, path: Path) -> dict[str, int | None]:
    """Special tokens by name, with their ids where the file gives them."""
    if value is None:
        return {}
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return dict.fromkeys(value)
    if isinstance(value, dict):
        check_vocabulary(value, path)
        return dict(value)
    raise _damaged(path, "its special_tokens are neither a list of names nor names with ids")


def _first(names: tuple[str, ...], tokens: Mapping[str, int]) -> str | None:
    return next((name for name in names if name in tokens), None)


def _templates(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if "chat_template" in name}


def _damaged(path: Path, what: str) -> TokenizerError:
    return TokenizerError(f"{path} is a damaged tokenizer of ArmGPT: {what}.")

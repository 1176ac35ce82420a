"""The `tokenizer.*` keys of GGUF and the `Vocabulary` they hold, by one table for both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError
from llamita.formats.gguf_values import Value
from llamita.formats.vocabulary import NORMAL, PADDING_SCORE, UNUSED, Vocabulary, padding_name

_GGML = "tokenizer.ggml."
_ROLES = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # as GGUF spells it
    "pad": "padding_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
    "fim_pre": "fim_pre_token_id",
    "fim_suf": "fim_suf_token_id",
    "fim_mid": "fim_mid_token_id",
    "fim_pad": "fim_pad_token_id",
    "fim_rep": "fim_rep_token_id",
    "fim_sep": "fim_sep_token_id",
}
_FLAGS = {
    "add_bos": "add_bos_token",
    "add_eos": "add_eos_token",
    "add_space_prefix": "add_space_prefix",
    "remove_extra_whitespaces": "remove_extra_whitespaces",
}
_TEMPLATE, _TEMPLATES = "tokenizer.chat_template", "tokenizer.chat_templates"
VOCABULARY_KEYS = frozenset(
    [_GGML + key for key in ("model", "pre", "tokens", "scores", "token_type", "merges")]
    + [_GGML + key for key in (*_ROLES.values(), *_FLAGS.values())]
    + [_TEMPLATE, _TEMPLATES]
)
_HARMLESS = frozenset(
    {
        _GGML + "token_type_count",
        _GGML + "prefix_token_id",  # old spellings of the fim roles
        _GGML + "suffix_token_id",
        _GGML + "middle_token_id",
        "tokenizer.huggingface.json",
        "tokenizer.rwkv.world",
    }
)
END_ROLES = ("eos", "eot", "eom")
"""Tokens after which llama.cpp stops, each of them."""
_LEAVE_OUT = "Leave out those that never end one: --override eos_token_id='[…]'."


def read_vocabulary(metadata: Mapping[str, Value], path: Path) -> Vocabulary | None:
    """The tokenizer that a file carries; None where it has none.

    Raises:
        CheckpointError: a key is of a wrong type, or the tables do not fit together.
    """
    model = metadata.get(_GGML + "model")
    if model in (None, "none", "no_vocab"):
        return None
    for key, value in metadata.items():
        is_template = key.startswith(f"{_TEMPLATE}.")
        if not key.startswith("tokenizer.") or key in VOCABULARY_KEYS | _HARMLESS or is_template:
            continue
        if isinstance(value, np.ndarray) or value is not False:
            _refuse(path, key, "it is not known here, so it may change the tokens", drop=True)
    model = _text(metadata, _GGML + "model", path)
    tokens = metadata.get(_GGML + "tokens")
    if not isinstance(tokens, list) or not tokens:
        _refuse(path, _GGML + "tokens", "it must be a list of texts")
    count = len(tokens)
    merges = metadata.get(_GGML + "merges")
    if merges is not None and not isinstance(merges, list):
        _refuse(path, _GGML + "merges", "it must be a list of texts")
    names = metadata.get(_TEMPLATES, [])
    named = {
        key.removeprefix(f"{_TEMPLATE}."): _text(metadata, key, path) or ""
        for key in metadata
        if key.startswith(f"{_TEMPLATE}.")
    }
    if not isinstance(names, list) or set(names) - set(named) - {"default"}:
        _refuse(path, _TEMPLATES, "it names templates that are not there")
    return Vocabulary(
        model=str(model),
        tokens=tokens,
        pre=_text(metadata, _GGML + "pre", path),
        scores=_numbers(metadata, _GGML + "scores", count, "f", path),
        types=_numbers(metadata, _GGML + "token_type", count, "iu", path),
        merges=merges,
        ids=_ids(metadata, count, path) or None,
        chat_template=_text(metadata, _TEMPLATE, path),
        chat_templates=named or None,
        **{field: _flag(metadata, _GGML + key, path) for field, key in _FLAGS.items()},
    )


def fit_vocabulary(vocabulary: Vocabulary, config: ModelConfig) -> Vocabulary:
    """As many tokens as the model has rows, and the ids that the model itself names.

    Rows without a token get `[PADn]` of the type UNUSED, as llama.cpp's converter does.

    Raises:
        ConfigError: there are more tokens than rows, or ends that no key can name.
    """
    count, wanted = len(vocabulary.tokens), config.vocab_size
    if count > wanted:
        raise ConfigError(
            f"the tokenizer has {count} tokens, but vocab_size is {wanted}: "
            "it is not the tokenizer of this model."
        )
    types = vocabulary.types or [NORMAL] * count
    more = wanted - count
    known = vocabulary.ids or {}
    for end in config.eos_token_ids:
        if end not in known.values() and end < count and types[end] == NORMAL:
            raise ConfigError(
                f"eos_token_id names {end}, a token of plain text ({vocabulary.tokens[end]!r}); "
                "whatever ends a text is a control token in GGUF, which never comes from text.",
                hint=_LEAVE_OUT,
            )
    return replace(
        vocabulary,
        tokens=vocabulary.tokens + [padding_name(number) for number in range(count, wanted)],
        types=types + [UNUSED] * more,
        scores=None if vocabulary.scores is None else vocabulary.scores + [PADDING_SCORE] * more,
        ids=name_roles(known, config),
    )


def name_roles(known: Mapping[str, int], config: ModelConfig) -> dict[str, int]:
    """The ids by their roles: those of the tokenizer, and what else the model names.

    Raises:
        ConfigError: there are more ends than roles for them.
    """
    ids = dict(known)
    if config.bos_token_id is not None:
        ids.setdefault("bos", config.bos_token_id)
    if config.pad_token_id is not None:
        ids.setdefault("pad", config.pad_token_id)
    # Whatever ends a turn must be named, whoever knows of it: else llama.cpp talks on.
    named = [ids[role] for role in END_ROLES if role in ids]
    left = [end for end in config.eos_token_ids if end not in named]
    free = [role for role in END_ROLES if role not in ids]
    if len(left) > len(free):
        own = f", beside the tokenizer's own {named}" if named else ""
        raise ConfigError(
            f"eos_token_id is {list(config.eos_token_ids)}{own}; GGUF names three such tokens "
            f"at most ({', '.join(END_ROLES)}).",
            hint=_LEAVE_OUT,
        )
    # The last ones first: without an eot, llama.cpp takes the token with one of its usual names.
    if "eos" not in free and left:
        free = free[-len(left) :]
    return {**ids, **dict(zip(free, left, strict=False))}


def role_entries(ids: Mapping[str, int]) -> dict[str, int]:
    """The keys that name tokens by their roles."""
    return {_GGML + key: ids[role] for role, key in _ROLES.items() if role in ids}


def vocabulary_entries(vocabulary: Vocabulary) -> dict[str, Any]:
    """The `tokenizer.*` keys of a vocabulary; what it does not say is left out."""
    entries: dict[str, Any] = {
        _GGML + "model": vocabulary.model,
        _GGML + "pre": vocabulary.pre,
        _GGML + "tokens": vocabulary.tokens,
        _GGML + "scores": _array(vocabulary.scores, np.float32),
        _GGML + "token_type": _array(vocabulary.types, np.int32),
        _GGML + "merges": vocabulary.merges,
    }
    entries.update(role_entries(vocabulary.ids or {}))
    for field, key in _FLAGS.items():
        entries[_GGML + key] = getattr(vocabulary, field)
    entries[_TEMPLATE] = vocabulary.chat_template
    if vocabulary.chat_templates:
        entries[_TEMPLATES] = list(vocabulary.chat_templates)
        for name, template in vocabulary.chat_templates.items():
            entries[f"{_TEMPLATE}.{name}"] = template
    return {key: value for key, value in entries.items() if value is not None}


def _array(numbers: list[Any] | None, dtype: Any) -> np.ndarray | None:
    return None if numbers is None else np.array(numbers, dtype=dtype)


def _ids(metadata: Mapping[str, Value], count: int, path: Path) -> dict[str, int]:
    ids: dict[str, int] = {}
    for role, key in _ROLES.items():
        number = metadata.get(_GGML + key)
        if number is None:
            continue
        if type(number) is not int or not 0 <= number < count:
            _refuse(path, _GGML + key, f"it must be a token from 0 to {count - 1}", drop=True)
        ids[role] = number
    return ids


def _text(metadata: Mapping[str, Value], key: str, path: Path) -> str | None:
    value = metadata.get(key)
    if value is not None and not isinstance(value, str):
        _refuse(path, key, "it must be text")
    return value


def _flag(metadata: Mapping[str, Value], key: str, path: Path) -> bool | None:
    value = metadata.get(key)
    if value is not None and not isinstance(value, bool):
        _refuse(path, key, "it must be true or false")
    return value


def _numbers(
    metadata: Mapping[str, Value], key: str, count: int, codes: str, path: Path
) -> list[Any] | None:
    value = metadata.get(key)
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in codes or len(value) != count:
        _refuse(path, key, f"it must be a list of {count} numbers, one for each token")
    numbers: list[Any] = value.tolist()
    return numbers


def _refuse(path: Path, key: str, reason: str, drop: bool = False) -> NoReturn:
    raise CheckpointError(
        f"{path} has a wrong {key}: {reason}.",
        hint=f"If it does not matter, drop it with --override {key}=null." if drop else None,
    )

"""Which tokens have a role in a GGUF file, what frames a text, and the chat templates."""

from __future__ import annotations

import json
from dataclasses import replace

from llamita.errors import TokenizerError
from llamita.formats.vocabulary import UNKNOWN, Vocabulary
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat_files import CONFIG, DEFAULT
from llamita.tokenizer.special import token_name

TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|eot|>")


def with_roles(tables: Vocabulary, tokenizer: Tokenizer) -> Vocabulary:
    """The tables with the roles, flags and chat templates of the tokenizer."""
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    for place, framed, role in (
        ("in front of", tokenizer.bos_prefix, bos),
        ("behind", tokenizer.eos_suffix, eos),
    ):
        if framed not in ([], [role]):
            raise refusal(f"it puts the ids {framed} {place} texts, and GGUF allows for one")
    eot = _turn_end(tokenizer)
    if eos is None and (eos := bos if eot is None else eot) is None:
        # Without one, llama.cpp takes some fixed id for it and stops there.
        raise refusal(
            "it has no end-of-sequence token",
            hint="Name one as eos_token in its tokenizer_config.json.",
        )
    ids = {
        "bos": bos,
        "eos": eos,
        "unk": _unknown(tables, tokenizer),
        "pad": tokenizer.pad_token_id,
        "eot": eot,
        "eom": tokenizer.special_tokens.get("<|eom_id|>"),
    }
    templates = dict(tokenizer.chat_templates)
    return replace(
        tables,
        ids={role: token_id for role, token_id in ids.items() if token_id is not None},
        add_bos=bool(tokenizer.bos_prefix),
        add_eos=bool(tokenizer.eos_suffix),
        chat_template=templates.pop(DEFAULT, None),
        chat_templates=templates or None,
    )


def refusal(reason: str, hint: str | None = None) -> TokenizerError:
    """The error of a tokenizer that GGUF cannot hold."""
    return TokenizerError(
        f"the tokenizer cannot be written as GGUF: {reason}.",
        hint=hint or "Convert to hf, whose tokenizer.json can hold it.",
    )


def _turn_end(tokenizer: Tokenizer) -> int | None:
    """The control token that ends a turn: one that the chat template writes, if it has one."""
    names = [name for name in TURN_ENDS if name in tokenizer.special_tokens]
    template = tokenizer.chat_template or ""
    names.sort(key=lambda name: name not in template)
    return tokenizer.special_tokens[names[0]] if names else None


def _unknown(tables: Vocabulary, tokenizer: Tokenizer) -> int | None:
    """The id for what is unknown: of the tables, or what a byte-level tokenizer calls so."""
    if tables.types and UNKNOWN in tables.types:
        return tables.types.index(UNKNOWN)
    name = token_name(json.loads(tokenizer._files.get(CONFIG, b"{}")).get("unk_token"))
    return tokenizer.special_tokens.get(name or "")

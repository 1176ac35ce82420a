"""Which tokens have a role in a GGUF file, what frames a text, and the chat templates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from llamita.errors import TokenizerError
from llamita.formats.vocabulary import UNKNOWN, Vocabulary
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat_files import DEFAULT
from llamita.tokenizer.ends import END_OF_MESSAGE, end_ids
from llamita.tokenizer.special import ROLE_FILES, find_role

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
    eot, eom = _turn_ends(tokenizer)
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
        "eom": eom,
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


def _turn_ends(tokenizer: Tokenizer) -> tuple[int | None, int | None]:
    """The tokens beside EOS that end a turn, and that end a message which waits for a tool.

    The chat template says them; where it cannot be asked, the usual names do. Without a template
    no turn was trained, so none ends.
    """
    known, template = tokenizer.special_tokens, tokenizer.chat_template
    ends: Sequence[int] = ()
    if template is not None:
        try:
            ends = end_ids(tokenizer)
        except TokenizerError:  # llama.cpp may be able to use it
            usual = [name for name in TURN_ENDS if name in known]
            ends = [known[name] for name in sorted(usual, key=lambda name: name not in template)]
    message_end = known.get(END_OF_MESSAGE)
    turn_end, after_tool_call, *_ = [
        *(end for end in ends if end not in (tokenizer.eos_token_id, message_end)),
        None,
        None,
    ]
    return turn_end, after_tool_call if message_end is None else message_end


def _unknown(tables: Vocabulary, tokenizer: Tokenizer) -> int | None:
    """The id for what is unknown: of the tables, or what a byte-level tokenizer calls so."""
    if tables.types and UNKNOWN in tables.types:
        return tables.types.index(UNKNOWN)
    sources = [json.loads(tokenizer.side_files.get(file, b"{}")) for file in ROLE_FILES]
    return find_role("unk", sources, {}, tokenizer.special_tokens.get)

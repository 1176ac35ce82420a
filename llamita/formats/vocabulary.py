"""A tokenizer as GGUF stores it: tables of tokens, in plain data.

`gguf_*.py` read and write it; `llamita.tokenizer` makes a tokenizer of it and back.
"""

from __future__ import annotations

from dataclasses import dataclass

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""The types of tokens, numbered as in GGUF and in SentencePiece."""
PADDING_SCORE = -10000.0
"""As llama.cpp's converter scores tokens that only fill the table."""


def padding_name(token_id: int) -> str:
    """What llama.cpp's converter calls an id without a token."""
    return f"[PAD{token_id}]"


@dataclass(frozen=True)
class Vocabulary:
    """The content of GGUF's `tokenizer.*` keys.

    Attributes:
        model: "gpt2" (byte-level BPE with merges) or "llama" (SentencePiece BPE by scores).
        pre: the name of the pattern that splits text before "gpt2" merges (`tokenizer.ggml.pre`).
        tokens: their strings, as the model writes them (GPT-2's byte characters, or U+2581).
        scores: of each token ("llama"), else None.
        types: of each token, as numbered above; None where the file has none.
        merges: "left right", best first ("gpt2"), else None.
        ids: of the roles the file names: "bos", "eos", "unk", "sep", "pad", "eot", "eom", ….
        add_bos, add_eos, add_space_prefix, remove_extra_whitespaces: None where unsaid.
        chat_template: Jinja, or None.
        chat_templates: further templates by name.
    """

    model: str
    tokens: list[str]
    pre: str | None = None
    scores: list[float] | None = None
    types: list[int] | None = None
    merges: list[str] | None = None
    ids: dict[str, int] | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None
    add_space_prefix: bool | None = None
    remove_extra_whitespaces: bool | None = None
    chat_template: str | None = None
    chat_templates: dict[str, str] | None = None

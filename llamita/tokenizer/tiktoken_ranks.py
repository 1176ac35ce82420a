"""Llama 3's `tokenizer.model`: a line for each token, its bytes in base64 and its rank.

Ranks are ids. Two neighbours are joined when their joint bytes are a token, the lowest rank first,
so the merges of a tokenizer.json are all pairs that join to a token, in the order of its rank; and
a word that is a token is taken whole (`ignore_merges`). Behind the ranks come 256 control tokens.
Sources: `llama/tokenizer.py` of meta-llama/llama3, `models/llama3/api/tokenizer.py` of
meta-llama/llama-models, and openai/tiktoken.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from pathlib import Path

from llamita.errors import TokenizerError
from llamita.tokenizer.convert import added_token, bpe_definition, template
from llamita.tokenizer.definition import MAX_TOKEN_ID
from llamita.tokenizer.files import tokenizer_config
from llamita.tokenizer.gguf_pre import BY_NAME, pre_tokenizer_steps
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.surface import BYTE_CHARACTERS

CONTROL_TOKENS = 256
BEGIN, END, PAD = "<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>"
RESERVED = "<|reserved_special_token_"
_OTHER_VOCABULARIES = {
    50256: "GPT-2",
    100256: "cl100k (GPT-4)",
    151643: "Qwen",
    199998: "o200k (GPT-4o)",
    200000: "Llama 4",
}


def control_names(scaled: bool) -> list[str]:
    """The 256 control tokens in the order of their ids: of Llama 3.0, or `scaled`, of 3.1 on."""
    reserved = [f"{RESERVED}{number}|>" for number in range(CONTROL_TOKENS)]
    if scaled:
        third = [PAD, "<|step_id|>"]
        rest = ["<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|image|>", *reserved[2:]]
    else:
        third = reserved[2:4]
        rest = [reserved[4], "<|eot_id|>", *reserved[5:]]
    header = ["<|start_header_id|>", "<|end_header_id|>"]
    return [BEGIN, END, *reserved[:2], *third, *header, *rest][:CONTROL_TOKENS]


def is_tiktoken(data: bytes) -> bool:
    """Whether the first line is a token in base64 and its rank."""
    first = data[:200].split(b"\n", 1)[0].split()
    return len(first) == 2 and first[1].isdigit() and first[0].isascii()


def read_tiktoken(
    data: bytes, files: Mapping[str, bytes], *, scaled: bool, path: Path
) -> HFTokenizer:
    """The tokenizer of a file of ranks, with a BOS in front of texts as Llama 3 has it.

    Args:
        files: what lies beside it (chat templates).
        scaled: whether the control tokens have the names of Llama 3.1 and later.

    Raises:
        TokenizerError: the file is damaged, or is another model's vocabulary.
    """
    ranks = _ranks(data, path)
    size = len(ranks)
    if size in _OTHER_VOCABULARIES:
        raise TokenizerError(
            f"{path} is the vocabulary of {_OTHER_VOCABULARIES[size]} ({size:,} ranks), which "
            "splits text in another way than Llama 3.",
            hint="Use the tokenizer.json of the same model.",
        )
    names = control_names(scaled)
    surfaces = ["".join(BYTE_CHARACTERS[byte] for byte in token) for token in ranks]
    known = BY_NAME["llama-bpe"]
    definition = bpe_definition(
        {surface: rank for rank, surface in enumerate(surfaces)}
        | {name: size + i for i, name in enumerate(names)},
        merges_of_ranks(surfaces),
        [added_token(name, size + i, True) for i, name in enumerate(names)],
        pre_tokenizer=pre_tokenizer_steps(known),
        post_processor=template({size: BEGIN}, [size], []),
        ignore_merges=known.ignore_merges,
    )
    config = tokenizer_config(
        bos_token=BEGIN, eos_token=END, pad_token=PAD if scaled else None, add_bos=True
    )
    kept = {name: content for name, content in files.items() if "chat_template" in name}
    return HFTokenizer(
        definition,
        {**kept, "tokenizer_config.json": config},
        path=path,
    )


def merges_of_ranks(tokens: Iterable[str]) -> list[str]:
    """All merges "left right" that make one of `tokens`, which stand in the order of their ranks.

    tokens: byte-level, a character for each byte.
    """
    tokens = list(tokens)
    known = set(tokens)
    return [
        f"{token[:cut]} {token[cut:]}"
        for token in tokens
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]


def _ranks(data: bytes, path: Path) -> list[bytes]:
    """The tokens' bytes by rank."""
    tokens: dict[int, bytes] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line:
            continue
        fields = line.split()
        try:
            [encoded, rank_text] = fields
            token, rank = base64.b64decode(encoded, validate=True), int(rank_text)
        except (ValueError, binascii.Error):
            raise TokenizerError(
                f"{path} is a damaged file of token ranks: line {number} is not a token in base64 "
                "and its rank."
            ) from None
        if not token or not 0 <= rank <= MAX_TOKEN_ID - CONTROL_TOKENS or rank in tokens:
            raise TokenizerError(
                f"{path} is a damaged file of token ranks: line {number} "
                + ("has an empty token." if not token else f"has the rank {rank}, which is ")
                + ("" if not token else "taken." if rank in tokens else "no token id.")
            )
        tokens[rank] = token
    if len(set(tokens.values())) != len(tokens):
        raise TokenizerError(f"{path} is a damaged file of token ranks: a token is in it twice.")
    if tokens and max(tokens) != len(tokens) - 1:
        missing = next(rank for rank in range(len(tokens)) if rank not in tokens)
        raise TokenizerError(f"{path} is a damaged file of token ranks: rank {missing} is missing.")
    absent = {bytes([byte]) for byte in range(256)}.difference(tokens.values())
    if absent:
        raise TokenizerError(
            f"{path} is a damaged file of token ranks: {len(absent)} of the 256 bytes have none."
        )
    return [tokens[rank] for rank in range(len(tokens))]

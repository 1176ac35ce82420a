"""The patterns that split text before byte-level BPE, by the names that llama.cpp gives them.

GGUF names its pattern in `tokenizer.ggml.pre`; a tokenizer.json spells it out. The table serves
both ways. A name stands here when the tokenizer.json that it gives has the token ids of llama.cpp
(but for the long s, U+017F, behind an apostrophe, which llama.cpp does not fold to an s).
Source: `src/llama-vocab.cpp` of llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llamita.tokenizer.definition import flatten
from llamita.tokenizer.pre_tokenizers import PRE_TOKENIZERS

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2, QWEN2 = PRE_TOKENIZERS["gpt-2"], PRE_TOKENIZERS["qwen2"]
DIGIT, THREE_DIGITS = r"\p{N}", "[0-9][0-9][0-9]"


@dataclass(frozen=True)
class PreTokenizer:
    """How llama.cpp treats text under some names.

    Attributes:
        patterns: each splits what the one before left.
        names: of `tokenizer.ggml.pre`; the first is the one llamita writes.
        ignore_merges: whether a word that is a token is taken whole.
        add_bos: whether a BOS is put in front where the file does not say.
    """

    patterns: tuple[str, ...]
    names: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


KNOWN = (
    PreTokenizer(
        (QWEN2,),
        ("qwen2", "stablelm2", "deepseek-r1-qwen", "hunyuan", "megrez", "solar-open", "kormo"),
    ),
    PreTokenizer(
        (LLAMA3,),
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        ignore_merges=True,
        add_bos=True,
    ),
    PreTokenizer((LLAMA3,), ("smaug-bpe", "dbrx", "chatglm-bpe", "glm4")),
    PreTokenizer((GPT2,), ("gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "exaone4")),
    PreTokenizer(
        (DIGIT, GPT2),
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    ),
    PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, THREE_DIGITS), ("falcon",)),
    PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", THREE_DIGITS), ("default",)),
)
BY_NAME = {name: known for known in KNOWN for name in known.names}


def pre_tokenizer_steps(known: PreTokenizer) -> dict[str, Any]:
    """The `pre_tokenizer` of a tokenizer.json."""
    steps: list[dict[str, Any]] = [_split(pattern) for pattern in known.patterns]
    steps.append(_byte_level(use_regex=False))
    return {"type": "Sequence", "pretokenizers": steps}


def find_pre_tokenizer(definition: dict[str, Any]) -> PreTokenizer | None:
    """The entry that does what a byte-level tokenizer.json does before its merges, or None."""
    patterns = _patterns(definition)
    ignore_merges = bool(definition["model"].get("ignore_merges"))
    for known in KNOWN:
        if known.patterns == patterns and known.ignore_merges == ignore_merges:
            return known
    return None


def _patterns(definition: dict[str, Any]) -> tuple[str, ...] | None:
    """The patterns that split text one after the other, or None for anything else."""
    patterns: list[str] = []
    steps = list(flatten(definition.get("pre_tokenizer"), "pretokenizers"))
    for number, step in enumerate(steps):
        if step["type"] == "Digits" and step.get("individual_digits"):
            patterns.append(DIGIT)
        elif step["type"] == "Split":
            pattern = step["pattern"].get("Regex")
            if pattern is None or step != _split(pattern):
                return None
            patterns.append(pattern)
        elif step["type"] == "ByteLevel" and number == len(steps) - 1:
            if step.get("add_prefix_space"):
                return None
            if step.get("use_regex", True):
                patterns.append(GPT2)
            return tuple(patterns)
        else:
            return None
    return None


def _split(pattern: str) -> dict[str, Any]:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }

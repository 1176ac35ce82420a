"""Tools, tokenizers whose tags are control tokens or text, and a model that says anything."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator

from llamita.inference.constraint_tools import ToolConstraint
from llamita.inference.tool_rules import ToolRules
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.chat import BUILT_IN, ChatFormat
from llamita.tokenizer.chat_tools import Syntax
from llamita.tokenizer.convert import added_token
from llamita.tokenizer.convert import template as framed
from llamita.tokenizer.files import tokenizer_config
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.surface import BYTE_CHARACTERS
from tests.inference.constraint_cases import tokenizer_of

TOOLS: list[dict[str, Any]] = [
    {
        "name": "convert",
        "description": "Convert.",
        "parameters": {
            "type": "object",
            "properties": {
                "value": {"type": "number"},
                "unit": {"$ref": "#/$defs/unit"},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            },
            "required": ["value", "unit"],
            "$defs": {"unit": {"enum": ["km", "mi", "C"]}},
        },
    },
    {
        "type": "function",
        "function": {
            "name": 'note "it"',
            "description": "Note.",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "minLength": 1, "maxLength": 9},
                    "sum": {"type": "string", "pattern": r"^[0-9]+([-+*/][0-9]+)*$"},
                },
                "required": ["text"],
                "additionalProperties": False,
            },
        },
    },
    {"name": "now", "description": "No arguments."},
]
BARE = "{% for m in messages %}{{ m['content'] }}{% endfor %}{{ tools | tojson }}"
TEMPLATES: dict[Syntax, str] = {
    "hermes": BUILT_IN["chatml-tools"].template,
    "llama3": BUILT_IN["llama3"].template,
    "json": BARE,
}
SIGNATURES = BUILT_IN["chatml-signatures"].template  # whose calls are Hermes'
CONTROL = ("<eos>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<|python_tag|>")


def byte_tokenizer(control: Sequence[str], merges: Sequence[str] = ()) -> HFTokenizer:
    """Each byte of UTF-8 is a token, then each of the merged texts (its beginnings too)."""
    vocab = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}
    pairs = []
    for merged in merges:
        text = "".join(BYTE_CHARACTERS[byte] for byte in merged.encode())
        for end in range(2, len(text) + 1):
            if text[:end] not in vocab:
                vocab[text[:end]] = len(vocab)
                pairs.append(f"{text[: end - 1]} {text[end - 1]}")
    ids = {name: len(vocab) + place for place, name in enumerate(control)}
    steps = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    definition = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(name, i, True) for name, i in ids.items()],
        "normalizer": None,
        "pre_tokenizer": {**steps, "use_regex": False},
        "post_processor": framed({}, [], []),
        "decoder": {**steps, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab | ids,
            "merges": pairs,
        },
    }
    return HFTokenizer(
        definition,
        {
            "tokenizer_config.json": tokenizer_config(
                bos_token=None, eos_token="<eos>", add_bos=False
            )
        },
    )


@cache
def tool_tokenizer(kind: str) -> Tokenizer:
    """Of every kind of `constraint_cases`, and those whose tags are control tokens or pieces."""
    if kind == "control":
        return byte_tokenizer(CONTROL)
    if kind == "half-control":
        return byte_tokenizer([name for name in CONTROL if name != "</tool_call>"])
    if kind == "crossing":  # pieces that reach over the borders of tags and signs
        return byte_tokenizer(
            CONTROL[:3],
            ["<tool_call>{", 'l>{"name', '>"', ">}", "}}</tool", "}</", "call>\n<", '[{"na', " {"],
        )
    return tokenizer_of(kind)


TOOL_KINDS = ["control", "half-control", "crossing"]


def chat_of(syntax: Syntax, tokenizer: Tokenizer) -> ChatFormat:
    chat = ChatFormat(tokenizer, TEMPLATES[syntax])
    assert chat.tool_syntax == syntax
    if syntax == "hermes":
        assert ChatFormat(tokenizer, SIGNATURES).tool_syntax == syntax
    return chat


def rules_of(
    syntax: Syntax, tools: Sequence[Mapping[str, Any]] = TOOLS, **choice: Any
) -> ToolRules:
    return ToolRules.of(tools, syntax, **choice)


def check_calls(message: Mapping[str, Any], tools: Sequence[Mapping[str, Any]] = TOOLS) -> None:
    """Every call is of one of the tools, and its arguments fit the schema."""
    known = {t["name"]: t.get("parameters", {}) for t in (t.get("function", t) for t in tools)}
    for call in message.get("tool_calls", []):
        function = call["function"]
        Draft202012Validator(known[function["name"]]).validate(json.loads(function["arguments"]))


def say(
    constraint: ToolConstraint,
    seed: int,
    *,
    size: int,
    likely: Sequence[int] = (),
    most: int = 200,
) -> tuple[list[int], str]:
    """The ids of a random answer that the constraint allows, and its finish reason.

    likely: ids drawn one after the other at the beginning, as far as they are allowed.
    """
    draw = random.Random(seed)
    matcher = constraint.start([0])
    ids: list[int] = []
    for step in range(most):
        mask = matcher.mask()
        if mask is None:
            allowed = list(range(size))
        else:
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
            allowed = [int(i) for i in np.flatnonzero(bits) if i < size]
        assert allowed
        ends = [i for i in allowed if i in constraint.stop_token_ids]
        closing = [i for i in allowed if constraint.shown(i)[:1] in (b'"', b"}", b"]")]
        if step < len(likely) and likely[step] in allowed:
            token_id = likely[step]
        elif len(ends) == len(allowed) or (ends and mask is not None and draw.random() < 0.3):
            token_id = draw.choice(ends)
        elif step > 60 and closing:
            token_id = draw.choice(closing)
        else:
            token_id = draw.choice(allowed)
        matcher.accept(token_id)
        if token_id in constraint.stop_token_ids:
            assert matcher.is_complete
            return ids, "stop"
        ids.append(token_id)
        if matcher.is_complete:
            return ids, "stop"
    return ids, "length"

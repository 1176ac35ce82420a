"""A tokenizer of every kind, and a model that says anything its constraint allows."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from llamita.inference.constraints import Constraint, Matcher, compile_constraint
from llamita.inference.params import SamplingParams
from llamita.tokenizer import IncrementalDetokenizer, Tokenizer, train_tokenizer
from llamita.tokenizer.armgpt import read_armgpt
from llamita.tokenizer.gguf_vocabulary import from_vocabulary, to_vocabulary
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from llamita.tokenizer.tiktoken_ranks import read_tiktoken
from tests.tokenizer.foreign import ranks_of, tiktoken_file
from tests.tokenizer.tokenizer_texts import MIXED, WORDS, train_model

PRINTABLE = [chr(number) for number in range(32, 127)]
CORPUS = [MIXED, WORDS, " ".join(PRINTABLE), '{"name": "x", "n": [1, -2.5e+7, null]}'] * 3


def _trained(spec: str) -> Callable[[], Tokenizer]:
    return lambda: train_tokenizer(CORPUS, spec)


def _pieces(**options: Any) -> Callable[[], Tokenizer]:
    """A SentencePiece model that normalizes nothing and puts a space in front."""
    options = {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": True,
        "vocab_size": 520,
        **options,
    }
    return lambda: SentencePieceTokenizer(train_model(CORPUS, **options))


def _tiktoken() -> Tokenizer:
    trained = train_tokenizer(CORPUS, "bpe:400")
    assert isinstance(trained, HFTokenizer)
    ranks = tiktoken_file(ranks_of(trained, 3))
    return read_tiktoken(ranks, {}, scaled=False, path=Path("tokenizer.model"))


def characters(letters: Sequence[str]) -> Tokenizer:
    """ArmGPT's table of characters, without a token for what is unknown."""
    content = {"type": "char", "itos": ["<|user|>", "<|end|>", *letters]}
    content |= {"special_tokens": ["<|user|>", "<|end|>"]}
    return read_armgpt(content, {}, Path("tokenizer.json"))


_KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": _trained("bpe:400"),
    "spm": _trained("spm:500"),
    "unigram": _trained("unigram:450"),
    "char": _trained("char"),
    "llama": _pieces(split_digits=True),
    "llama-without-bytes": _pieces(byte_fallback=False, character_coverage=1.0),
    "unigram-without-bytes": _pieces(
        model_type="unigram", byte_fallback=False, character_coverage=1.0, vocab_size=290
    ),
    "tiktoken": _tiktoken,
    "armgpt": lambda: characters(PRINTABLE),
    "gguf-byte-level": lambda: from_vocabulary(
        to_vocabulary(train_tokenizer(CORPUS, "bpe:400")), Path("model.gguf")
    ),
    "gguf-pieces": lambda: from_vocabulary(
        to_vocabulary(train_tokenizer(CORPUS, "spm:500")), Path("model.gguf")
    ),
}
KINDS = list(_KINDS)


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    return _KINDS[kind]()


def constrain(
    tokenizer: Tokenizer, stop_token_ids: Collection[int] = (), **settings: Any
) -> Constraint:
    constraint = compile_constraint(SamplingParams(**settings), tokenizer, stop_token_ids)
    assert constraint is not None
    return constraint


def allowed(matcher: Matcher) -> list[int]:
    """The ids of a mask."""
    bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
    ids: list[int] = np.flatnonzero(bits).tolist()
    return ids


@cache
def _closers(tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens that bring JSON to its end."""
    ids = range(tokenizer.vocab_size)
    return frozenset(i for i in ids if tokenizer.token_bytes(i)[:1] in (b'"', b"}", b"]"))


def say(
    tokenizer: Tokenizer,
    constraint: Constraint,
    seed: int,
    *,
    prompt: Sequence[int] = (),
    stop_token_ids: Collection[int] = (),
    most: int = 120,
) -> tuple[str, str]:
    """A random text that the constraint allows, as it is shown, and its finish reason."""
    draw = random.Random(seed)
    matcher = constraint.start(prompt)
    detokenizer = IncrementalDetokenizer(tokenizer)
    for token_id in prompt:
        detokenizer.push(token_id)
    text, reason = "", "length"
    for step in range(most):
        ids = allowed(matcher)
        assert ids
        assert not any(tokenizer.is_special(i) for i in ids if i not in stop_token_ids)
        ends = [i for i in ids if i in stop_token_ids]
        closing = [i for i in ids if i in _closers(tokenizer)]
        if ends and draw.random() < 0.3:
            ids = ends
        elif step > 15 and closing:
            ids = closing
        token_id = draw.choice(ids)
        matcher.accept(token_id)
        if token_id in stop_token_ids:
            assert matcher.is_complete
            reason = "stop"
            break
        text += detokenizer.push(token_id)
        if matcher.is_complete:
            reason = "stop"
            break
    return text + detokenizer.finish(), reason

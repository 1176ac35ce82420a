"""Tokenizer files that ask for memory, time or panic: one error each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llamita.errors import TokenizerError
from llamita.tokenizer import load_tokenizer, train_tokenizer
from tests.fuzz.protobuf_parts import build, parse, varint

TEXTS = ["the llama walks home slowly when rain falls near our river " * 20]


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    tokenizer = train_tokenizer(TEXTS, "bpe:270")
    content: dict[str, Any] = tokenizer.definition()
    return content


def write(folder: Path, content: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(?:a{1,100}){1,100}{1,100}$"])
def test_a_pattern_that_backtracks_without_end_is_one_error(
    pattern: str, definition: dict[str, Any], tmp_path: Path
) -> None:
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    steps = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    path = write(tmp_path, {**definition, "pre_tokenizer": steps})
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_tokenizer(path).encode("a" * 60 + "b")


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"type": "BPE", "vocab": {"a": 2**31}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 10**30}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["b", "c"]]}},
        {"model": {"type": "Unigram", "unk_id": 99, "vocab": [["a", 0.0]]}},
        {"model": {"type": "Unigram", "unk_id": 0, "vocab": [[]]}},
        {"model": []},
        {"added_tokens": [{"id": -1, "content": "x"}]},
        {"added_tokens": [{"content": "x"}]},
        {"decoder": {"type": "Sequence", "decoders": 5}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(" * 10**4}}},
    ],
)
def test_a_tokenizer_json_that_cannot_be_is_one_error(
    change: dict[str, Any], definition: dict[str, Any], tmp_path: Path
) -> None:
    path = write(tmp_path, {**definition, **change})
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_tokenizer(path).encode("a text")


def test_a_tokenizer_json_nested_without_end_is_one_error(tmp_path: Path) -> None:
    for depth in (150, 100_000):
        path = write(tmp_path, '{"model": ' + "[" * depth + "]" * depth + "}")
        with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
            load_tokenizer(path)


def test_a_tokenizer_json_of_endless_empty_lists_is_refused_before_it_is_parsed(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, '{"model": [' + "[]," * 4_100_000 + "[]]}")
    with pytest.raises(TokenizerError, match="more than"):
        load_tokenizer(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda fields: [*fields, (1, 2, build([(1, 2, b"\xff\xfe"), (3, 0, b"\x01")]))],
        lambda fields: [*fields, (1, 2, build([(1, 2, b"a" * 5000)]))],
        lambda fields: [*fields, (2, 2, build([(40, 0, varint(10**6))]))],
        lambda fields: fields[:5],
        lambda fields: [(1, 2, b"\x0a\x7fa"), *fields],
    ],
)
def test_a_sentencepiece_model_that_cannot_be_is_one_error(damage: Any, tmp_path: Path) -> None:
    train_tokenizer(TEXTS, "spm:290").save(tmp_path)
    model = (tmp_path / "tokenizer.model").read_bytes()
    path = tmp_path / "damaged.model"
    path.write_bytes(build(damage(parse(model))))
    with pytest.raises(TokenizerError, match=r"damaged\.model"):
        load_tokenizer(path).summary()

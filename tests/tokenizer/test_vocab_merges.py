"""`vocab.json` with `merges.txt`: as transformers' class reads it, refused where none is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2Tokenizer, Qwen2Tokenizer

from llamita.errors import TokenizerError
from llamita.tokenizer import load_tokenizer, train_tokenizer
from llamita.tokenizer.hf import HFTokenizer
from tests.tokenizer.tokenizer_texts import MIXED


def write_old_form(
    corpus: list[str], folder: Path, tokenizer_class: str | None, pre_tokenizer: str, **config: Any
) -> None:
    trained = train_tokenizer(corpus, "bpe:500", pre_tokenizer=pre_tokenizer)
    assert isinstance(trained, HFTokenizer)
    model = trained.definition()["model"]
    merges = "\n".join(" ".join(merge) for merge in model["merges"])
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    if tokenizer_class is not None:
        config |= {"tokenizer_class": tokenizer_class}
    names = {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk")}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, **config}))


@pytest.mark.parametrize(
    ("name", "pre_tokenizer", "peer_class"),
    [
        ("GPT2Tokenizer", "gpt-2", GPT2Tokenizer),
        ("GPT2TokenizerFast", "gpt-2", GPT2Tokenizer),
        ("Qwen2Tokenizer", "qwen2", Qwen2Tokenizer),
    ],
)
def test_ids_are_those_of_transformers(
    name: str, pre_tokenizer: str, peer_class: Any, corpus: list[str], tmp_path: Path
) -> None:
    write_old_form(corpus, tmp_path, name, pre_tokenizer)
    tokenizer = load_tokenizer(tmp_path)
    peer = peer_class.from_pretrained(tmp_path)
    for text in [MIXED, *corpus, " a", "a  b", "e\u0301"]:
        assert tokenizer.encode(text) == peer.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text, True) == peer.encode(text)
    assert tokenizer.eos_token_id == peer.eos_token_id == 0
    assert set(tokenizer.encode("<|endoftext|>")).isdisjoint({0})
    assert (tokenizer.lossy is None) is (name != "Qwen2Tokenizer")


def test_added_tokens_and_a_prefixed_space_count(corpus: list[str], tmp_path: Path) -> None:
    decoder = {"500": {"content": "<|tool|>", "special": True}, "501": {"content": "the fox"}}
    write_old_form(
        corpus, tmp_path, "GPT2Tokenizer", "gpt-2", added_tokens_decoder=decoder,
        add_prefix_space=True, add_bos_token=True,
    )  # fmt: skip
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == 502
    assert tokenizer.special_tokens["<|tool|>"] == 500
    assert 501 in tokenizer.encode("see the fox run")
    assert tokenizer.encode("cat") == tokenizer.encode(" cat")
    assert tokenizer.bos_prefix == [0]


@pytest.mark.parametrize("name", [None, "RobertaTokenizer", "PreTrainedTokenizerFast"])
def test_other_classes_are_refused_with_the_way_out(
    name: str | None, corpus: list[str], tmp_path: Path
) -> None:
    write_old_form(corpus, tmp_path, name, "gpt-2")
    with pytest.raises(TokenizerError, match="old form") as caught:
        load_tokenizer(tmp_path)
    assert "AutoTokenizer" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("merges.txt", b"a\n", "line 1"),
        ("merges.txt", b"#version: 0.2\nzz qq\n", "line 2, 'zz qq'"),
        ("merges.txt", b"\xff\n", "not UTF-8"),
        ("vocab.json", b"[]", "no JSON object"),
        ("vocab.json", b'{"a": -1}', "the id -1"),
        ("added_tokens.json", b'{"<|endoftext|>": 9}', "two ids, 0 and 9"),
    ],
)
def test_damage_is_named(
    file: str, content: bytes, message: str, corpus: list[str], tmp_path: Path
) -> None:
    write_old_form(corpus, tmp_path, "GPT2Tokenizer", "gpt-2")
    (tmp_path / file).write_bytes(content)
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in caught.value.message

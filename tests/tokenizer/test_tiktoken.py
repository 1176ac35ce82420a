"""Llama 3's file of token ranks: the ids of tiktoken, the names of Meta's control tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import TokenizerError
from llamita.tokenizer import load_tokenizer, train_tokenizer
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.tiktoken_ranks import control_names, read_tiktoken
from tests.tokenizer.foreign import ranks_of, tiktoken_file, tiktoken_ids
from tests.tokenizer.tokenizer_texts import MIXED


@pytest.fixture(scope="module")
def ranks(corpus: list[str]) -> list[bytes]:
    trained = train_tokenizer(corpus, "bpe:600")
    assert isinstance(trained, HFTokenizer)
    return ranks_of(trained, 3)


@pytest.fixture(scope="module")
def tokenizer(ranks: list[bytes]) -> HFTokenizer:
    return read_tiktoken(tiktoken_file(ranks), {}, scaled=False, path=Path("tokenizer.model"))


UNITS = ["a", "b", "th", "e", "\n", "'", " ", "1", "é"]


@given(text=st.text() | st.lists(st.sampled_from(UNITS)).map("".join))
def test_ids_are_those_of_tiktoken(tokenizer: HFTokenizer, ranks: list[bytes], text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids == tiktoken_ids(ranks, text)
    assert tokenizer.decode(ids) == text


def test_a_page_has_the_ids_of_tiktoken(
    tokenizer: HFTokenizer, ranks: list[bytes], corpus: list[str]
) -> None:
    for text in [MIXED, *corpus]:
        assert tokenizer.encode(text) == tiktoken_ids(ranks, text)
    assert tokenizer.lossy is None


def test_bos_stands_in_front_and_control_tokens_behind_the_ranks(
    tokenizer: HFTokenizer, ranks: list[bytes]
) -> None:
    first = len(ranks)
    assert tokenizer.vocab_size == first + 256
    assert tokenizer.encode("a", add_special_tokens=True)[0] == tokenizer.bos_token_id == first
    assert tokenizer.eos_token_id == first + 1
    assert tokenizer.special_tokens["<|start_header_id|>"] == first + 6
    assert tokenizer.special_tokens["<|eot_id|>"] == first + 9
    assert set(tokenizer.encode("<|eot_id|>")).isdisjoint(tokenizer.special_tokens.values())


def test_control_tokens_have_the_names_of_their_release() -> None:
    old, new = control_names(scaled=False), control_names(scaled=True)
    assert len(set(old)) == len(set(new)) == 256
    assert (old[4], old[8], old[10]) == tuple(
        f"<|reserved_special_token_{number}|>" for number in (2, 4, 5)
    )
    assert (old[255], new[255]) == (
        "<|reserved_special_token_250|>",
        "<|reserved_special_token_245|>",
    )
    assert new[4:6] == ["<|finetune_right_pad_id|>", "<|step_id|>"]
    assert new[8:12] == ["<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|image|>"]


@pytest.mark.parametrize("scaled", [True, False])
def test_the_release_is_read_off_params_json(
    ranks: list[bytes], scaled: bool, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.model").write_bytes(tiktoken_file(ranks))
    params = {"dim": 8} | ({"use_scaled_rope": True} if scaled else {})
    (tmp_path / "params.json").write_text(json.dumps(params))
    tokenizer = load_tokenizer(tmp_path)
    assert ("<|eom_id|>" in tokenizer.special_tokens) is scaled
    assert tokenizer.pad_token_id == (len(ranks) + 4 if scaled else None)


def test_a_saved_directory_gives_the_same_ids(tokenizer: HFTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.encode(MIXED, True) == tokenizer.encode(MIXED, True)
    assert loaded.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:255], "have none"),
        (lambda lines: [*lines, b"YWJj"], "line 598"),
        (lambda lines: [*lines, b"Y!Jj 597"], "line 598"),
        (lambda lines: [*lines, b"YWJjZGVmZw== 5"], "rank 5, which is taken"),
        (lambda lines: [*lines, b"YWJjZGVmZw== 99999999999"], "no token id"),
        (lambda lines: [*lines, b"YWJjZGVmZw== 600"], "rank 597 is missing"),
        (lambda lines: [*lines, lines[0].split()[0] + b" 597"], "twice"),
    ],
)
def test_damage_is_named(change: object, message: str, ranks: list[bytes], tmp_path: Path) -> None:
    assert callable(change)
    lines = tiktoken_file(ranks).splitlines()
    path = tmp_path / "tokenizer.model"
    path.write_bytes(b"\n".join(change(lines)))
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(path)
    assert str(path) in caught.value.message


def test_other_vocabularies_are_refused_by_name(tmp_path: Path) -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [number.to_bytes(3, "big") for number in range(50256 - 256)]
    path = tmp_path / "tokenizer.model"
    path.write_bytes(tiktoken_file(tokens))
    with pytest.raises(TokenizerError, match="vocabulary of GPT-2"):
        load_tokenizer(path)

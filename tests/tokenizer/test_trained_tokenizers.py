"""What every tokenizer trained by llamita promises, for all kinds alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from llamita.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from tests.tokenizer.tokenizer_texts import MIXED, SPECS

TRICKY = ["<0x41>", "<0x0A>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<unk>", "  ", "\r\n"]
TEXTS = st.lists(st.text() | st.sampled_from([*TRICKY, MIXED]), max_size=4).map("".join)
EACH_KIND = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def keeps(tokenizer: Tokenizer, text: str) -> str:
    """What SentencePiece gives back: U+2581, its sign for a space, is the one stated exception."""
    return text.replace("▁", " ") if tokenizer.kind in ("spm", "unigram") else text


@EACH_KIND
@given(text=TEXTS)
def test_decode_gives_back_every_text(trained: Tokenizer, text: str) -> None:
    assert trained.lossy is None
    assert trained.decode(trained.encode(text)) == keeps(trained, text)
    assert trained.decode(trained.encode(text, add_special_tokens=True)) == keeps(trained, text)


@EACH_KIND
@given(text=TEXTS)
def test_text_never_becomes_a_control_token(trained: Tokenizer, text: str) -> None:
    assert set(trained.encode(text)).isdisjoint(trained.special_tokens.values())


def test_autotokenizer_gives_the_same_ids_and_text(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path)
    # A model's config beside it makes AutoTokenizer try the class of that model's family.
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    peer = AutoTokenizer.from_pretrained(tmp_path)
    for text in (MIXED, MIXED.strip(), "", " ", "\n", "x"):
        ids = trained.encode(text)
        assert peer.encode(text, add_special_tokens=False) == ids
        assert peer.encode(text) == trained.encode(text, add_special_tokens=True)
        assert peer.decode(ids) == text
    assert (peer.bos_token_id, peer.eos_token_id) == (trained.bos_token_id, trained.eos_token_id)
    assert len(peer) == trained.vocab_size


def test_loading_what_was_saved_gives_the_same_tokenizer(
    trained: Tokenizer, tmp_path: Path
) -> None:
    trained.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.fingerprint == trained.fingerprint
    assert loaded.kind == trained.kind
    assert loaded.special_tokens == trained.special_tokens
    assert loaded.encode(MIXED) == trained.encode(MIXED)


def test_control_tokens_stand_at_the_first_ids(trained: Tokenizer) -> None:
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert [trained.special_tokens[name] for name in names] == [0, 1, 2]
    assert trained.bos_token_id == trained.eos_token_id == trained.separator_id == 0


def test_exactly_one_bos_is_added_on_request_only(trained: Tokenizer) -> None:
    assert trained.add_bos
    assert trained.encode("the fox", add_special_tokens=True) == [0, *trained.encode("the fox")]
    assert trained.encode("", add_special_tokens=True) == [0]


def test_decode_hides_control_tokens_unless_asked_to_show_them(trained: Tokenizer) -> None:
    ids = [1, *trained.encode("the fox"), 2]
    assert trained.decode(ids) == "the fox"
    assert trained.decode(ids, skip_special_tokens=False) == "<|im_start|>the fox<|im_end|>"
    assert trained.token_bytes(1) == b""
    assert trained.is_special(1)
    assert not trained.is_special(ids[1])


def test_token_bytes_join_to_the_text(trained: Tokenizer) -> None:
    assert b"".join(map(trained.token_bytes, trained.encode(MIXED))) == MIXED.encode()
    assert trained.token_bytes(trained.vocab_size) == b""


def test_a_batch_gives_what_each_text_gives_alone(trained: Tokenizer, corpus: list[str]) -> None:
    assert trained.encode_batch(corpus) == [trained.encode(text) for text in corpus]
    assert trained.encode_batch([]) == []


@pytest.mark.parametrize("spec", SPECS)
def test_training_twice_gives_the_same_tokenizer(spec: str, corpus: list[str]) -> None:
    first, second = (train_tokenizer(iter(corpus), spec) for _ in range(2))
    assert first.fingerprint == second.fingerprint


def test_fingerprints_of_different_tokenizers_differ(corpus: list[str]) -> None:
    made = [train_tokenizer(corpus, spec) for spec in (*SPECS, "bpe:501")]
    assert len({tokenizer.fingerprint for tokenizer in made}) == len(made)

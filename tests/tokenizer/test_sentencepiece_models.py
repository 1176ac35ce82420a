"""Foreign SentencePiece models, with `sentencepiece` itself as the peer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2
from transformers import AutoTokenizer

from llamita.errors import TokenizerError
from llamita.tokenizer import load_tokenizer, train_tokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from tests.tokenizer.tokenizer_texts import MIXED, train_model

TEXTS = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@TEXTS
@given(text=st.text() | st.just(MIXED))
def test_llama_like_model_agrees_with_sentencepiece(llama_model: bytes, text: str) -> None:
    tokenizer = SentencePieceTokenizer(llama_model)
    peer = SentencePieceProcessor(model_proto=llama_model)
    ids = tokenizer.encode(text)
    assert ids == peer.encode(text)
    assert tokenizer.decode(ids) == peer.decode(ids) == text.replace("▁", " ")


def test_llama_like_model_adds_its_bos(llama_model: bytes) -> None:
    tokenizer = SentencePieceTokenizer(llama_model)
    assert tokenizer.add_bos
    assert tokenizer.encode("x", add_special_tokens=True) == [1, *tokenizer.encode("x")]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.separator_id) == (1, 2, 2)


def test_hermes_like_model_agrees_with_sentencepiece(
    hermes_model: bytes, corpus: list[str]
) -> None:
    tokenizer = SentencePieceTokenizer(hermes_model)
    peer = SentencePieceProcessor(model_proto=hermes_model)
    for text in corpus[1:]:
        assert tokenizer.encode(text) == peer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == peer.decode(peer.encode(text))


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_user_defined_symbols_never_match_in_text(model_type: str, corpus: list[str]) -> None:
    symbols = ["<|im_start|>", "<|im_end|>", "<tool_call>", "end"]
    model = train_model(corpus, model_type=model_type, user_defined_symbols=symbols)
    text = "a <|im_start|>user<|im_end|> <tool_call> the end <s></s><unk>"
    peer = SentencePieceProcessor(model_proto=model)
    tokenizer = SentencePieceTokenizer(model)
    assert set(peer.encode(text)) & set(map(peer.piece_to_id, symbols))
    assert set(tokenizer.encode(text)).isdisjoint(tokenizer.special_tokens.values())
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert [tokenizer.special_tokens[name] for name in symbols] == peer.piece_to_id(symbols)


def test_white_space_symbols_are_text(corpus: list[str]) -> None:
    model = train_model(
        corpus,
        user_defined_symbols=["\n\n\n", "▁▁▁"],
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
    )
    tokenizer = SentencePieceTokenizer(model)
    peer = SentencePieceProcessor(model_proto=model)
    assert tokenizer.encode("a\n\n\nb   c") == peer.encode("a\n\n\nb   c")
    assert tokenizer.decode(tokenizer.encode("a\n\n\nb   c")) == "a\n\n\nb   c"
    assert "\n\n\n" not in tokenizer.special_tokens


def test_what_a_model_loses_is_said(llama_model: bytes, hermes_model: bytes) -> None:
    assert SentencePieceTokenizer(llama_model).lossy is None
    assert "normalizer" in (SentencePieceTokenizer(hermes_model).lossy or "")


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize("dummy_prefix", [True, False])
def test_the_saved_directory_gives_autotokenizer_the_same_ids(
    model_type: str, dummy_prefix: bool, corpus: list[str], tmp_path: Path
) -> None:
    model = train_model(
        corpus,
        model_type=model_type,
        add_dummy_prefix=dummy_prefix,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
    )
    tokenizer = SentencePieceTokenizer(model)
    tokenizer.save(tmp_path)
    peer = AutoTokenizer.from_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.lossy is None
    for text in [*corpus, "", " ", " x", "\n"]:
        ids = tokenizer.encode(text)
        assert peer.encode(text, add_special_tokens=False) == loaded.encode(text) == ids
        assert peer.decode(ids) == loaded.decode(ids) == text
        assert peer.encode(text) == loaded.encode(text, True) == tokenizer.encode(text, True)


def test_pieces_need_not_be_in_the_order_of_their_scores(
    llama_model: bytes, corpus: list[str], tmp_path: Path
) -> None:
    proto = sentencepiece_model_pb2.ModelProto.FromString(llama_model)
    normal = list(proto.pieces[300:])
    del proto.pieces[300:]
    proto.pieces.extend(reversed(normal))
    tokenizer = SentencePieceTokenizer(proto.SerializeToString())
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).encode_batch(corpus) == tokenizer.encode_batch(corpus)


def test_a_model_cut_off_behind_its_pieces_is_refused(llama_model: bytes) -> None:
    proto = sentencepiece_model_pb2.ModelProto.FromString(llama_model)
    proto.ClearField("normalizer_spec")
    with pytest.raises(TokenizerError, match="cut off"):
        SentencePieceTokenizer(proto.SerializeToString())


def test_a_normalizing_model_survives_saving(
    hermes_model: bytes, corpus: list[str], tmp_path: Path
) -> None:
    tokenizer = SentencePieceTokenizer(hermes_model)
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.special_tokens == tokenizer.special_tokens
    for text in corpus:
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.decode(loaded.encode(text)) == tokenizer.decode(tokenizer.encode(text))
    text = "<|im_start|>user<|im_end|>"
    assert set(loaded.encode(text)).isdisjoint(loaded.special_tokens.values())


def test_the_saved_model_is_the_one_loaded(llama_model: bytes, tmp_path: Path) -> None:
    SentencePieceTokenizer(llama_model).save(tmp_path)
    assert (tmp_path / "tokenizer.model").read_bytes() == llama_model


def test_a_trained_model_gives_the_same_ids_in_sentencepiece(
    corpus: list[str], tmp_path: Path
) -> None:
    tokenizer = train_tokenizer(corpus, "spm:600")
    tokenizer.save(tmp_path)
    peer = SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    assert peer.encode(corpus) == tokenizer.encode_batch(corpus)
    bare = load_tokenizer(tmp_path / "tokenizer.model")
    assert bare.fingerprint == tokenizer.fingerprint
    assert bare.separator_id == 0


def test_config_and_added_tokens_beside_a_model_count(llama_model: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(llama_model)
    config = {
        "add_bos_token": False,
        "eos_token": {"content": "<|im_end|>"},
        "chat_template": "{{ messages }}",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|im_end|>": 500}))
    tokenizer = load_tokenizer(tmp_path)
    assert not tokenizer.add_bos
    assert (tokenizer.eos_token_id, tokenizer.vocab_size) == (500, 501)
    assert tokenizer.decode([500], skip_special_tokens=False) == "<|im_end|>"
    tokenizer.save(tmp_path / "saved")
    saved = load_tokenizer(tmp_path / "saved")
    assert saved.fingerprint == tokenizer.fingerprint
    kept = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert kept["chat_template"] == "{{ messages }}"

"""Tokenizers written for other systems read back as the same, or are refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor

from llamita.errors import TokenizerError
from llamita.shipping.verify_tokenizers import PAGE
from llamita.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from llamita.tokenizer.export import armgpt_json, sentencepiece_model, tiktoken_ranks
from llamita.tokenizer.gguf_vocabulary import from_vocabulary, to_vocabulary
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from llamita.tokenizer.tiktoken_ranks import read_tiktoken
from tests.tokenizer.foreign import change_definition, ranks_of, tiktoken_file
from tests.tokenizer.tokenizer_texts import MIXED

FILE = Path("tokenizer.model")


def assert_same(a: Tokenizer, b: Tokenizer, texts: list[str]) -> None:
    assert a.encode_batch(texts) == b.encode_batch(texts)
    assert a.special_tokens == b.special_tokens
    ids = range(a.vocab_size)
    assert [a.token_bytes(i) for i in ids] == [b.token_bytes(i) for i in ids]
    assert (a.bos_token_id, a.eos_token_id) == (b.bos_token_id, b.eos_token_id)


def test_a_model_that_was_read_is_written_as_it_was(llama_model: bytes) -> None:
    assert sentencepiece_model(SentencePieceTokenizer(llama_model)) == llama_model


def test_a_trained_tokenizer_gives_its_model(corpus: list[str]) -> None:
    for spec in ("spm:600", "unigram:450"):
        tokenizer = train_tokenizer(corpus, spec)
        model = sentencepiece_model(tokenizer)
        peer = SentencePieceProcessor(model_proto=model)
        assert peer.encode(corpus) == tokenizer.encode_batch(corpus)
        assert peer.eos_id() == tokenizer.eos_token_id
        assert_same(SentencePieceTokenizer(model), tokenizer, [*corpus, PAGE])


@pytest.mark.parametrize("way", ["gguf", "tokenizer.json"])
def test_a_rebuilt_model_has_the_same_ids(
    way: str, llama_model: bytes, corpus: list[str], tmp_path: Path
) -> None:
    source = SentencePieceTokenizer(llama_model)
    other: Tokenizer
    if way == "gguf":
        other = from_vocabulary(to_vocabulary(source), FILE)
    else:
        source.save(tmp_path)
        (tmp_path / "tokenizer.model").unlink()
        other = load_tokenizer(tmp_path)
    model = sentencepiece_model(other)
    texts = [PAGE, MIXED, *corpus, " a  b ", ""]
    assert_same(SentencePieceTokenizer(model), source, texts)
    assert SentencePieceProcessor(model_proto=model).encode(texts) == source.encode_batch(texts)


def test_added_tokens_become_pieces(llama_model: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(llama_model)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|im_end|>": 501}))
    tokenizer = load_tokenizer(tmp_path)
    model = sentencepiece_model(tokenizer)
    peer = SentencePieceProcessor(model_proto=model)
    assert (peer.get_piece_size(), peer.piece_to_id("<|im_end|>")) == (502, 501)
    assert peer.encode(MIXED) == tokenizer.encode(MIXED)


def test_other_kinds_are_no_sentencepiece_models(corpus: list[str], tmp_path: Path) -> None:
    for spec in ("bpe:400", "char"):
        with pytest.raises(TokenizerError, match="SentencePiece model") as caught:
            sentencepiece_model(train_tokenizer(corpus, spec))
        assert caught.value.hint
    train_tokenizer(corpus, "unigram:450").save(tmp_path)
    (tmp_path / "tokenizer.model").unlink()
    with pytest.raises(TokenizerError, match=r"without its tokenizer\.model"):
        sentencepiece_model(load_tokenizer(tmp_path))


@pytest.fixture(scope="module", params=[False, True], ids=["3.0", "3.1"])
def llama3(request: pytest.FixtureRequest, corpus: list[str]) -> tuple[bytes, Tokenizer]:
    trained = train_tokenizer(corpus, "bpe:500")
    assert isinstance(trained, HFTokenizer)
    data = tiktoken_file(ranks_of(trained, 3))
    return data, read_tiktoken(data, {}, scaled=request.param, path=FILE)


def test_ranks_come_back_to_the_byte(llama3: tuple[bytes, Tokenizer], tmp_path: Path) -> None:
    data, tokenizer = llama3
    assert tiktoken_ranks(tokenizer) == data
    tokenizer.save(tmp_path)
    assert tiktoken_ranks(load_tokenizer(tmp_path)) == data
    assert tiktoken_ranks(from_vocabulary(to_vocabulary(tokenizer), FILE)) == data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["model"].update(ignore_merges=False), "splits text in another way"),
        (lambda d: d.update(normalizer={"type": "NFC"}), "splits text in another way"),
        (lambda d: d["model"]["merges"].pop(), "not all those that its tokens allow"),
        (lambda d: d["model"]["merges"].reverse(), "another order than the ids"),
        (lambda d: d.update(post_processor=None), "in front of texts"),
        (lambda d: d["added_tokens"].pop(), "not the last 256 ids"),
        (lambda d: d["added_tokens"][9].update(content="<|im_end|>"), r"is <\|im_end\|>, not"),
    ],
)
def test_what_metas_loader_would_read_otherwise_is_refused(
    change: Any, message: str, llama3: tuple[bytes, Tokenizer], tmp_path: Path
) -> None:
    llama3[1].save(tmp_path)
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    change(definition)
    for token in definition["added_tokens"]:  # its name stands in the vocabulary as well
        names = [n for n, i in definition["model"]["vocab"].items() if i == token["id"]]
        for name in names:
            del definition["model"]["vocab"][name]
        definition["model"]["vocab"][token["content"]] = token["id"]
    change_definition(tmp_path, **definition)
    with pytest.raises(TokenizerError, match=message) as caught:
        tiktoken_ranks(load_tokenizer(tmp_path))
    assert caught.value.hint


def test_trained_tokenizers_are_no_ranks(corpus: list[str]) -> None:
    for spec in ("bpe:400", "spm:600", "char"):
        with pytest.raises(TokenizerError, match="cannot be written as Llama 3's"):
            tiktoken_ranks(train_tokenizer(corpus, spec))


def test_armgpt_gets_characters_back(write: Any) -> None:
    itos = ["<|user|>", "<|assistant|>", "<|end|>", *"\n abé▁Ա"]
    content = {"type": "char", "itos": itos, "special_tokens": itos[:3]}
    tokenizer = load_tokenizer(write("tokenizer.json", json.dumps(content).encode()))
    back = load_tokenizer(write("again.json", armgpt_json(tokenizer)))
    assert_same(back, tokenizer, ["ab é▁\nԱ", ""])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("bpe:400", "byte-level BPE"),
        ("char", "in bytes"),
        ("spm:600", "around texts"),
    ],
)
def test_what_armgpt_cannot_hold_is_refused(spec: str, message: str, corpus: list[str]) -> None:
    with pytest.raises(TokenizerError, match=message) as caught:
        armgpt_json(train_tokenizer(corpus, spec))
    assert caught.value.hint


def test_without_a_bos_a_trained_model_goes_to_armgpt(
    corpus: list[str], tmp_path: Path, write: Any
) -> None:
    train_tokenizer(corpus, "spm:600").save(tmp_path)
    change_definition(tmp_path, post_processor=None)
    tokenizer = load_tokenizer(tmp_path)
    back = load_tokenizer(write("bpe.json", armgpt_json(tokenizer)))
    assert_same(back, tokenizer, [*corpus, PAGE])
    assert back.bos_prefix == tokenizer.bos_prefix == []

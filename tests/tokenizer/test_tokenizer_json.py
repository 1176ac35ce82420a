"""Foreign tokenizer.json files, with `transformers.AutoTokenizer` as the peer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer, LlamaTokenizer, PreTrainedTokenizerFast

from llamita.errors import TokenizerError
from llamita.tokenizer import load_tokenizer, train_tokenizer
from llamita.tokenizer.convert import template
from llamita.tokenizer.hf import HFTokenizer
from tests.tokenizer.tokenizer_texts import MIXED, WORDS

QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(corpus: list[str], split: Any, special: list[str], **model: Any) -> Backend:
    backend = Backend(models.BPE(**model))
    backend.pre_tokenizer = split
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=450,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(corpus, trainer)
    return backend


def gpt2_like(corpus: list[str]) -> PreTrainedTokenizerFast:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend = byte_level(corpus, split, ["<|endoftext|>"])
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=end, eos_token=end)


def qwen_like(corpus: list[str]) -> PreTrainedTokenizerFast:
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend = byte_level(corpus, split, [])
    backend.normalizer = normalizers.NFC()
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    backend.add_tokens(
        [AddedToken("<tool_call>", special=False), AddedToken("frobnicate"), AddedToken("naïf")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )


def llama3_like(corpus: list[str]) -> PreTrainedTokenizerFast:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<|begin_of_text|>", "<|eot_id|>"]
    backend = byte_level(corpus, split, special, ignore_merges=True)
    backend.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=special[0], eos_token=special[1]
    )


def bos_and_eos(corpus: list[str]) -> PreTrainedTokenizerFast:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend = byte_level(corpus, split, ["<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


def unigram(corpus: list[str]) -> PreTrainedTokenizerFast:
    backend = Backend(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", unk_token="<unk>", pad_token="<unk>"
    )


MAKERS = [gpt2_like, qwen_like, llama3_like, bos_and_eos, unigram]


@pytest.mark.parametrize("make", MAKERS)
def test_ids_and_text_equal_autotokenizers(make: Any, corpus: list[str], tmp_path: Path) -> None:
    make(corpus).save_pretrained(tmp_path)
    peer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    for text in [MIXED, *corpus[:10], "", " x", "  frobnicate it"]:
        ids = tokenizer.encode(text)
        assert ids == peer.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text, add_special_tokens=True) == peer.encode(text)
        decoded = peer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert tokenizer.decode(ids) == decoded
    for role in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(tokenizer, role) == getattr(peer, role)
    assert tokenizer.vocab_size == len(peer)


@pytest.mark.parametrize("make", MAKERS)
def test_control_tokens_never_come_from_text(make: Any, corpus: list[str], tmp_path: Path) -> None:
    make(corpus).save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    text = f"a {' '.join(tokenizer.special_tokens)} b" + "".join(tokenizer.special_tokens)
    control = set(tokenizer.special_tokens.values())
    if make is unigram:  # it has no bytes: "<" is unknown to it, and that is what <unk> is for
        control.remove(tokenizer.special_tokens["<unk>"])
    else:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert set(tokenizer.encode(text)).isdisjoint(control)


def test_added_tokens_that_look_like_control_tokens_are_ones(
    corpus: list[str], tmp_path: Path
) -> None:
    qwen_like(corpus).save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert "<tool_call>" in tokenizer.special_tokens
    assert "frobnicate" not in tokenizer.special_tokens
    assert len(tokenizer.encode("frobnicate")) == 1


def test_added_words_are_plain_text_not_byte_level(corpus: list[str], tmp_path: Path) -> None:
    qwen_like(corpus).save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    [token_id] = tokenizer.encode("naïf")
    assert tokenizer.token_bytes(token_id) == "naïf".encode()


@pytest.mark.parametrize(
    ("make", "lossy"),
    [(gpt2_like, None), (llama3_like, None), (qwen_like, "NFC"), (unigram, "space")],
)
def test_what_a_tokenizer_loses_is_said(
    make: Any, lossy: str | None, corpus: list[str], tmp_path: Path
) -> None:
    make(corpus).save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.lossy is None if lossy is None else lossy in (tokenizer.lossy or "")


def test_llama_tokenizer_of_transformers_is_read(
    llama_model: bytes, corpus: list[str], tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.model").write_bytes(llama_model)
    LlamaTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "fast")
    peer = AutoTokenizer.from_pretrained(tmp_path / "fast")
    tokenizer = load_tokenizer(tmp_path / "fast")
    assert tokenizer.kind == "spm"
    for text in [*corpus, "", "x", "\nx"]:
        assert tokenizer.encode(text) == peer.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text, True) == peer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == peer.decode(
            tokenizer.encode(text), skip_special_tokens=True
        )


def test_a_unigram_model_does_not_read_byte_tokens_from_text(tmp_path: Path) -> None:
    vocabulary = [("<unk>", 0.0), *[(f"<0x{byte:02X}>", 0.0) for byte in range(256)], ("a", -1.0)]
    backend = Backend(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode("a<0x41>é")) == "a<0x41>é"


def test_truncation_and_padding_in_the_file_are_ignored(corpus: list[str], tmp_path: Path) -> None:
    tokenizer = gpt2_like(corpus)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=200)
    tokenizer.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    ids = load_tokenizer(tmp_path / "tokenizer.json").encode("the man " * 20)
    assert 4 < len(ids) < 200


def test_a_bare_file_finds_the_usual_names(corpus: list[str], tmp_path: Path) -> None:
    bos_and_eos(corpus).backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.add_bos) == (0, 1, True)
    assert tokenizer.separator_id == 1


def test_names_in_the_files_beside_it_go_before_the_usual_ones(
    corpus: list[str], tmp_path: Path
) -> None:
    llama3_like(corpus).backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 0]}))
    assert load_tokenizer(tmp_path).eos_token_id == 1
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": {"content": "<|begin_of_text|>", "lstrip": False}})
    )
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 0, None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": None}))
    assert load_tokenizer(tmp_path).eos_token_id is None


def test_a_tokenizer_without_eos_and_bos_has_no_separator(
    corpus: list[str], tmp_path: Path
) -> None:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level(corpus, split, []).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="neither"):
        _ = load_tokenizer(tmp_path).separator_id


def test_kinds_without_exact_bytes_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    backend = Backend(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    backend.save(str(path))
    with pytest.raises(TokenizerError, match="WordPiece"):
        load_tokenizer(path)
    backend = Backend(models.BPE({"a</w>": 0}, [], end_of_word_suffix="</w>"))
    backend.decoder = decoders.BPEDecoder()
    backend.save(str(path))
    with pytest.raises(TokenizerError, match="BPEDecoder"):
        load_tokenizer(path)


def test_the_token_in_front_of_texts_is_the_bos_unless_another_is_named() -> None:
    definition = train_tokenizer([WORDS, MIXED], "bpe:350").definition()
    definition = {**definition, "post_processor": template({0: "<|endoftext|>"}, [0], [])}
    generation = {"bos_token_id": 1}
    assert HFTokenizer(definition, generation=generation).bos_token_id == 0
    named = {"tokenizer_config.json": b'{"bos_token": "<|im_start|>"}'}
    assert HFTokenizer(definition, named, generation=generation).bos_token_id == 1

"""The ids of llama.cpp equal ours for every kind of tokenizer that GGUF can hold (field case 8)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llamita.formats.vocabulary import CONTROL, NORMAL, USER_DEFINED, Vocabulary
from llamita.shipping.verify_tokenizers import PAGE
from llamita.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from llamita.tokenizer.gguf_pre import BY_NAME, KNOWN
from llamita.tokenizer.gguf_vocabulary import from_vocabulary, to_vocabulary
from llamita.tokenizer.hf import HFTokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from llamita.tokenizer.surface import BYTE_CHARACTERS
from tests.tokenizer.foreign import ranks_of, tiktoken_file
from tests.tokenizer.llama_cpp import llama_cpp, write_vocabulary
from tests.tokenizer.tokenizer_texts import MIXED, train_model

pytest.importorskip("xllamacpp", reason="llama.cpp is the peer here")

EDGES = [
    "",
    " ",
    "   ",
    "\n",
    " \n ",
    " x",
    "x  ",
    "\t\t",
    "a b",
    "1234567",
    "<|im_end|>",
    "</s> <s>",
]
EDGES += ["<unk>", "<0x41>", "'S it'S we'LL", "ﬁ ½²ⅷ", "\r\n\r\n a", "Ողջույն", "👩‍👩‍👧 🇦🇲"]
PIECES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\ufeff", "\0"]
PIECES += ["a", "Bc", "É", "é", "ն", "Ք", "中文", "日", "ア", "ー", "한", "𐐀", "ﷺ", "ǅ", "ß", "ʰ"]
PIECES += ["1", "23", "4567", "٣", "½", "Ⅷ", "²", "𝟘", "'s", "'S", "'ll", "'LL", "'", "’", "$"]
PIECES += [
    "-",
    "_",
    ".",
    "...",
    "!?",
    "+=",
    "<|",
    "|>",
    "`",
    "~",
    "^",
    "\\",
    "🦙",
    "👩‍👩",
    "\u0301",
]


def mixed_texts(count: int) -> list[str]:
    draw = random.Random(0)
    return ["".join(draw.choices(PIECES, k=draw.randrange(1, 16))) for _ in range(count)]


def assert_same_ids(
    tokenizer: Tokenizer, vocabulary: Vocabulary, path: Path, texts: list[str]
) -> None:
    with llama_cpp(write_vocabulary(vocabulary, path)) as peer:
        for text in texts:
            assert peer(text) == tokenizer.encode(text), text
            framed = tokenizer.encode(text, add_special_tokens=True)
            assert peer(text, add_special=True) == framed, text


def llama3_like(corpus: list[str], folder: Path) -> Tokenizer:
    trained = train_tokenizer(corpus, "bpe:500")
    assert isinstance(trained, HFTokenizer)
    path = folder / "tokenizer.model"
    path.write_bytes(tiktoken_file(ranks_of(trained, 3)))
    return load_tokenizer(path)


def llama2_like(corpus: list[str], folder: Path) -> Tokenizer:
    model = train_model(
        corpus,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
    )
    return SentencePieceTokenizer(model)


def llama2_like_tokenizer_json(corpus: list[str], folder: Path) -> Tokenizer:
    llama2_like(corpus, folder).save(folder)
    (folder / "tokenizer.model").unlink()
    return load_tokenizer(folder)


def with_symbols(corpus: list[str], folder: Path) -> Tokenizer:
    model = train_model(
        corpus,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        user_defined_symbols=["<|im_start|>", "<|im_end|>", "<tool_call>", "\n\n\n", "▁▁▁▁"],
    )
    return SentencePieceTokenizer(model)


def characters(corpus: list[str], folder: Path) -> Tokenizer:
    return train_tokenizer([text.replace("\0", "") for text in corpus], "char")


def trained(spec: str, pre_tokenizer: str = "qwen2") -> Callable[[list[str], Path], Tokenizer]:
    return lambda corpus, folder: train_tokenizer(corpus, spec, pre_tokenizer=pre_tokenizer)


@pytest.mark.parametrize(
    ("make", "model", "pre"),
    [
        (trained("bpe:500"), "gpt2", "qwen2"),
        (trained("bpe:500", "gpt-2"), "gpt2", "gpt-2"),
        (trained("spm:600"), "llama", "default"),
        (llama2_like, "llama", "default"),
        (llama2_like_tokenizer_json, "llama", "default"),
        (llama3_like, "gpt2", "llama-bpe"),
        (with_symbols, "llama", "default"),
        (characters, "llama", "default"),
    ],
    ids=["bpe", "gpt-2", "spm", "llama2", "llama2-json", "llama3", "symbols", "char"],
)
def test_ids_equal_those_of_llama_cpp(
    make: Callable[[list[str], Path], Tokenizer],
    model: str,
    pre: str,
    corpus: list[str],
    tmp_path: Path,
) -> None:
    tokenizer = make(corpus, tmp_path)
    vocabulary = to_vocabulary(tokenizer)
    assert (vocabulary.model, vocabulary.pre) == (model, pre)
    texts = [PAGE, MIXED, *PAGE.splitlines(keepends=True), *EDGES, *mixed_texts(60)]
    texts = [text.replace("\0", "") for text in texts] if model == "llama" else texts
    assert_same_ids(tokenizer, vocabulary, tmp_path / "peer.gguf", texts)
    back = from_vocabulary(vocabulary, tmp_path / "peer.gguf")
    assert back.encode_batch(texts) == tokenizer.encode_batch(texts)
    assert back.special_tokens == tokenizer.special_tokens
    assert (back.bos_prefix, back.eos_token_id) == (tokenizer.bos_prefix, tokenizer.eos_token_id)
    ids = range(tokenizer.vocab_size)
    assert [back.token_bytes(i) for i in ids] == [tokenizer.token_bytes(i) for i in ids]
    if tokenizer.kind != "char":  # which comes back as a SentencePiece model
        assert to_vocabulary(back) == vocabulary


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.names[0])
def test_every_pre_tokenizer_splits_as_llama_cpp_does(known: object, tmp_path: Path) -> None:
    """Any two bytes are a token, so that each place where text is split shows in the ids."""
    name = next(name for name in BY_NAME if BY_NAME[name] is known)
    texts = [PAGE, MIXED, *mixed_texts(150)]
    units = [BYTE_CHARACTERS[byte] for byte in sorted(set("".join(texts[2:]).encode()))]
    tokens = [*BYTE_CHARACTERS, *(a + b for a in units for b in units), "<|endoftext|>"]
    vocabulary = Vocabulary(
        "gpt2",
        tokens,
        pre=name,
        types=[*[NORMAL] * (len(tokens) - 1), CONTROL],
        merges=[f"{a} {b}" for a in units for b in units],
        ids={"eos": len(tokens) - 1},
        add_bos=False,
    )
    tokenizer = from_vocabulary(vocabulary, tmp_path)
    assert to_vocabulary(tokenizer).pre == name
    assert_same_ids(tokenizer, vocabulary, tmp_path / "peer.gguf", texts)


@pytest.mark.parametrize("name", BY_NAME)
def test_llama_cpp_knows_every_name(name: str, corpus: list[str], tmp_path: Path) -> None:
    vocabulary = replace(to_vocabulary(train_tokenizer(corpus, "bpe:300")), pre=name)
    tokenizer = from_vocabulary(vocabulary, tmp_path)
    assert_same_ids(tokenizer, vocabulary, tmp_path / "peer.gguf", [MIXED, "it's 12345 <|x|>"])


def test_tokens_that_are_text_match_in_text_there_and_here(
    corpus: list[str], tmp_path: Path
) -> None:
    """User-defined tokens match; those that look like control tokens become control tokens."""
    base = to_vocabulary(train_tokenizer(corpus, "bpe:400"))
    vocabulary = replace(
        base,
        tokens=[*base.tokens, "\n\n\n", "the fox", "<tool_call>"],
        types=[*(base.types or []), USER_DEFINED, USER_DEFINED, USER_DEFINED],
    )
    tokenizer = from_vocabulary(vocabulary, tmp_path)
    text = "see the fox\n\n\nrun <tool_call> the  fox"
    assert {400, 401} < set(tokenizer.encode(text))
    assert 402 not in tokenizer.encode(text)
    written = to_vocabulary(tokenizer)
    assert (written.types or [])[400:] == [USER_DEFINED, USER_DEFINED, CONTROL]
    assert_same_ids(tokenizer, written, tmp_path / "peer.gguf", [text, MIXED, "the foxthe fox"])


def test_control_tokens_are_parsed_by_llama_cpp_only_when_asked(
    corpus: list[str], tmp_path: Path
) -> None:
    tokenizer = train_tokenizer(corpus, "bpe:400")
    path = write_vocabulary(to_vocabulary(tokenizer), tmp_path / "peer.gguf")
    with llama_cpp(path) as peer:
        assert peer("a<|im_end|>") == tokenizer.encode("a<|im_end|>")
        asked = peer("a<|im_end|>", parse_special=True)
    assert asked == [*tokenizer.encode("a"), tokenizer.special_tokens["<|im_end|>"]]

"""GGUF's tables: damage is named, what llama.cpp cannot do is refused, roles and templates stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import TokenizerError
from llamita.formats.gguf_read import read_gguf
from llamita.formats.vocabulary import (
    BYTE,
    CONTROL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
)
from llamita.shipping.verify_tokenizers import PAGE
from llamita.tokenizer import load_tokenizer, train_tokenizer
from llamita.tokenizer.chat import BUILT_IN
from llamita.tokenizer.gguf_vocabulary import from_vocabulary, to_vocabulary
from llamita.tokenizer.spm import SentencePieceTokenizer
from tests.tokenizer.foreign import change_definition
from tests.tokenizer.llama_cpp import llama_cpp
from tests.tokenizer.tokenizer_texts import MIXED, train_model

FILE = Path("model.gguf")
PREFIXED = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}


@pytest.fixture(scope="module")
def byte_level(corpus: list[str]) -> Vocabulary:
    return to_vocabulary(train_tokenizer(corpus, "bpe:400"))


@pytest.fixture(scope="module")
def pieces(corpus: list[str]) -> Vocabulary:
    return to_vocabulary(train_tokenizer(corpus, "spm:600"))


@given(text=st.text().map(lambda text: text.replace("▁", "")))
def test_text_comes_back(byte_level: Vocabulary, pieces: Vocabulary, text: str) -> None:
    for vocabulary in (byte_level, pieces):
        tokenizer = from_vocabulary(vocabulary, FILE)
        assert tokenizer.lossy is None
        assert tokenizer.decode(tokenizer.encode(text)) == text


def edited(values: Any, index: int, value: Any) -> list[Any]:
    return [*values[:index], value, *values[index + 1 :]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: {"model": "t5"}, "the model 't5'"),
        (lambda v: {"pre": "tekken"}, "tokenizer.ggml.pre 'tekken'"),
        (lambda v: {"tokens": []}, "0 tokens and 400 types"),
        (lambda v: {"tokens": [], "types": None, "ids": None}, "no tokens"),
        (lambda v: {"types": v.types[:-1]}, "400 tokens and 399 types"),
        (lambda v: {"scores": [0.0]}, "400 tokens and 1 scores"),
        (lambda v: {"types": edited(v.types, 9, 17)}, "has the type 17"),
        (lambda v: {"types": edited(v.types, 9, BYTE)}, "no name of a byte"),
        (lambda v: {"tokens": edited(v.tokens, 390, "a")}, "'a' has two ids"),
        (lambda v: {"tokens": edited(v.tokens, 390, "")}, "token 390 is empty"),
        (lambda v: {"ids": {"eos": 400}}, "its eos token has the id 400"),
        (lambda v: {"ids": {"pad": -1}}, "its pad token has the id -1"),
        (lambda v: {"ids": {}, "add_bos": True}, "add_bos is true, and"),
        (lambda v: {"merges": None}, "no merges"),
        (lambda v: {"merges": [*v.merges, "a"]}, "the merge 'a'"),
        (lambda v: {"merges": [*v.merges, "zq qz"]}, "the merge 'zq qz'"),
        (lambda v: {"merges": ["e  t", *v.merges]}, "the merge 'e  t'"),
        (lambda v: {"chat_templates": {"../../x": ""}}, r"a chat template '\.\./\.\./x'"),
    ],
)
def test_damaged_tables_are_named(
    change: Callable[[Vocabulary], dict[str, Any]], message: str, byte_level: Vocabulary
) -> None:
    with pytest.raises(TokenizerError, match=message) as caught:
        from_vocabulary(replace(byte_level, **change(byte_level)), FILE)
    assert "model.gguf" in caught.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: {"scores": None}, "no scores"),
        (lambda v: {"scores": edited(v.scores, 9, float("nan"))}, "are no numbers"),
        (lambda v: {"types": edited(v.types, 500, UNKNOWN)}, "2 of its tokens"),
    ],
)
def test_damaged_pieces_are_named(
    change: Callable[[Vocabulary], dict[str, Any]], message: str, pieces: Vocabulary
) -> None:
    with pytest.raises(TokenizerError, match=message):
        from_vocabulary(replace(pieces, **change(pieces)), FILE)


def test_an_unknown_pre_tokenizer_has_a_way_out(byte_level: Vocabulary) -> None:
    with pytest.raises(TokenizerError) as caught:
        from_vocabulary(replace(byte_level, pre="tekken"), FILE)
    assert "--tokenizer" in (caught.value.hint or "")
    assert "qwen2" in (caught.value.hint or "")


def test_types_that_are_missing_are_told_by_roles_and_names(
    pieces: Vocabulary, byte_level: Vocabulary
) -> None:
    for vocabulary in (pieces, byte_level):
        whole, bare = (
            from_vocabulary(v, FILE) for v in (vocabulary, replace(vocabulary, types=None))
        )
        assert bare.encode(MIXED) == whole.encode(MIXED)
        roles = {i for role, i in (vocabulary.ids or {}).items() if role != "unk"}
        assert roles <= set(bare.special_tokens.values())


def test_roles_flags_and_templates_travel_both_ways(
    byte_level: Vocabulary, pieces: Vocabulary, tmp_path: Path
) -> None:
    for vocabulary in (byte_level, pieces):
        end = vocabulary.tokens.index("<|im_end|>")
        given = replace(
            vocabulary,
            add_eos=True,
            chat_template="{{ messages }}<|im_end|>",
            chat_templates={"tool_use": "{{ tools }}"},
            ids={**(vocabulary.ids or {}), "pad": 2, "eot": end},
        )
        tokenizer = from_vocabulary(given, FILE)
        assert tokenizer.encode("a", True)[-1] == tokenizer.eos_token_id
        assert tokenizer.pad_token_id == 2
        assert tokenizer.chat_templates["tool_use"] == "{{ tools }}"
        assert to_vocabulary(tokenizer) == given
        tokenizer.save(tmp_path)
        assert to_vocabulary(load_tokenizer(tmp_path)) == given


def test_the_token_that_ends_a_turn_is_named(corpus: list[str]) -> None:
    tokenizer = train_tokenizer(corpus, "bpe:400")
    content = to_vocabulary(tokenizer)
    assert "eot" not in (content.ids or {})  # without chats, no turn ends
    chats = tokenizer.with_chat_template(BUILT_IN["chatml-tools"].template)
    assert (to_vocabulary(chats).ids or {})["eot"] == tokenizer.special_tokens["<|im_end|>"]
    both = replace(
        content,
        tokens=[*content.tokens, "<|eot_id|>"],
        types=[*(content.types or []), CONTROL],
        ids={"bos": 0, "eos": 0},
    )
    made = from_vocabulary(both, FILE).with_chat_template("{{ x }}<|eot_id|>")
    assert (to_vocabulary(made).ids or {})["eot"] == 400


def test_the_chat_template_says_which_token_ends_a_turn(corpus: list[str]) -> None:
    names = {"<|im_end|>": "<|turn|>", "<|im_start|>": "<|end|>"}  # one unusual, one misleading
    tables = to_vocabulary(train_tokenizer(corpus, "bpe:400"))
    tokens = [names.get(token, token) for token in tables.tokens]
    renamed = replace(tables, tokens=[*tokens, "<|call|>"], types=[*(tables.types or []), CONTROL])
    tokenizer = from_vocabulary(replace(renamed, ids={"bos": 0, "eos": 0}), FILE)
    turn = "{% for m in messages %}<|end|>{{ m.role }}\n{{ m.content }}"
    for end in ("<|turn|>", "{{ '<|call|>' if m.tool_calls else '<|turn|>' }}"):
        written = f"{turn}{{{{ m.tool_calls | tojson if m.tool_calls }}}}{end}\n{{% endfor %}}"
        made = tokenizer.with_chat_template(written)
        ids = to_vocabulary(made).ids or {}
        assert ids["eos"] == 0
        assert ids["eot"] == tokens.index("<|turn|>")
        assert ids.get("eom") == (400 if "call" in end else None)
    only_eos = tokenizer.with_chat_template(f"{turn}{{{{ eos_token }}}}{{% endfor %}}")
    assert set(to_vocabulary(only_eos).ids or {}) == {"bos", "eos"}


def test_an_unknown_token_of_the_older_file_of_names_is_named(
    corpus: list[str], tmp_path: Path
) -> None:
    train_tokenizer(corpus, "bpe:400").save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"unk_token": "<|im_start|>"}))
    for changes, name in (({}, "<|im_start|>"), ({"unk_token": "<|im_end|>"}, "<|im_end|>")):
        kept = {key: value for key, value in config.items() if key != "unk_token"}
        path.write_text(json.dumps({**kept, **changes}))
        tokenizer = load_tokenizer(tmp_path)
        assert (to_vocabulary(tokenizer).ids or {})["unk"] == tokenizer.special_tokens[name]


def test_tokens_that_only_fill_the_table_are_no_tokens(
    byte_level: Vocabulary, pieces: Vocabulary
) -> None:
    for vocabulary in (byte_level, pieces):
        size = len(vocabulary.tokens)
        padded = replace(
            vocabulary,
            tokens=[*vocabulary.tokens, *(f"[PAD{number}]" for number in range(size, size + 3))],
            types=[*(vocabulary.types or []), UNUSED, UNUSED, UNUSED],
            scores=vocabulary.scores and [*vocabulary.scores, 0.0, 0.0, 0.0],
        )
        tokenizer = from_vocabulary(padded, FILE)
        assert tokenizer.vocab_size == size
        assert to_vocabulary(tokenizer) == vocabulary
        given = from_vocabulary(replace(padded, ids={**(padded.ids or {}), "pad": size}), FILE)
        assert given.pad_token_id == size


def test_ids_without_a_token_are_unused(corpus: list[str], tmp_path: Path) -> None:
    train_tokenizer(corpus, "bpe:400").save(tmp_path)
    added = json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"]
    extra = {**added[0], "id": 402, "content": "<|tool|>"}
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    definition["model"]["vocab"]["<|tool|>"] = 402
    change_definition(tmp_path, added_tokens=[*added, extra], model=definition["model"])
    tokenizer = load_tokenizer(tmp_path)
    vocabulary = to_vocabulary(tokenizer)
    assert vocabulary.tokens[400:] == ["[PAD400]", "[PAD401]", "<|tool|>"]
    assert (vocabulary.types or [])[400:] == [UNUSED, UNUSED, CONTROL]
    back = from_vocabulary(vocabulary, FILE)
    assert [back.token_bytes(i) for i in range(403)] == [
        tokenizer.token_bytes(i) for i in range(403)
    ]


def test_unigram_is_refused(corpus: list[str]) -> None:
    with pytest.raises(TokenizerError, match="unigram is no llama tokenizer"):
        to_vocabulary(train_tokenizer(corpus, "unigram:450"))


@pytest.mark.parametrize(
    ("spec", "changes", "message"),
    [
        ("bpe:400", {"normalizer": {"type": "NFC"}}, r"its normalizer \(NFC\) changes text"),
        (
            "bpe:400",
            {
                "pre_tokenizer": {
                    "type": "ByteLevel",
                    "add_prefix_space": True,
                    "trim_offsets": True,
                }
            },
            "no name for",
        ),
        ("bpe:400", {"pre_tokenizer": {"type": "Whitespace"}}, "no name for"),
        ("spm:600", {"normalizer": {"type": "Lowercase"}}, "changes or splits text"),
        ("char", {"pre_tokenizer": {"type": "Whitespace"}}, "splits text"),
        ("char", {"normalizer": {"type": "NFKC"}}, "changes text"),
    ],
)
def test_what_llama_cpp_would_not_do_is_refused(
    spec: str, changes: dict[str, Any], message: str, corpus: list[str], tmp_path: Path
) -> None:
    train_tokenizer(corpus, spec).save(tmp_path)
    change_definition(tmp_path, **changes)
    with pytest.raises(TokenizerError, match=message) as caught:
        to_vocabulary(load_tokenizer(tmp_path))
    assert caught.value.hint


def test_a_normalizing_sentencepiece_model_is_refused(hermes_model: bytes) -> None:
    with pytest.raises(TokenizerError, match=r"normalizer \(nmt_nfkc\) changes text"):
        to_vocabulary(SentencePieceTokenizer(hermes_model))


def test_a_model_without_bytes_is_refused(corpus: list[str]) -> None:
    model = train_model(
        corpus,
        byte_fallback=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
    )
    with pytest.raises(TokenizerError, match="no tokens for single bytes"):
        to_vocabulary(SentencePieceTokenizer(model))


def test_a_token_with_a_nul_is_refused(corpus: list[str]) -> None:
    with pytest.raises(TokenizerError, match=r"U\+0000"):
        to_vocabulary(train_tokenizer([*corpus, "\0"], "char"))


def test_merges_that_are_no_scores_are_refused(llama_model: bytes, tmp_path: Path) -> None:
    SentencePieceTokenizer(llama_model).save(tmp_path)
    (tmp_path / "tokenizer.model").unlink()
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    assert to_vocabulary(load_tokenizer(tmp_path)).scores is not None
    for merges in (model["merges"][1:], [*model["merges"][1:], model["merges"][0]]):
        change_definition(tmp_path, model={**model, "merges": merges})
        if merges[-1] != model["merges"][-1]:
            assert to_vocabulary(load_tokenizer(tmp_path)).scores is not None
        else:
            with pytest.raises(TokenizerError, match="no order that scores"):
                to_vocabulary(load_tokenizer(tmp_path))


def test_user_defined_pieces_of_spaces_are_written_as_spaces(corpus: list[str]) -> None:
    model = train_model(
        corpus,
        user_defined_symbols=["▁▁▁▁"],
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
    )
    vocabulary = to_vocabulary(SentencePieceTokenizer(model))
    assert (vocabulary.types or [])[vocabulary.tokens.index("    ")] == USER_DEFINED
    assert from_vocabulary(vocabulary, FILE).token_bytes(vocabulary.tokens.index("    ")) == b"    "


def test_smollm2_has_the_ids_and_the_tables_of_its_file(smollm2: Path) -> None:
    vocabulary = read_gguf(smollm2).tokenizer
    assert isinstance(vocabulary, Vocabulary)
    tokenizer = from_vocabulary(vocabulary, smollm2)
    assert tokenizer.vocab_size == 49152
    assert tokenizer.special_tokens["<|im_end|>"] == tokenizer.eos_token_id == 2
    assert "<|im_start|>" in (tokenizer.chat_template or "")
    assert tokenizer.decode(tokenizer.encode(MIXED)) == MIXED
    written = to_vocabulary(tokenizer)
    for name in ("model", "pre", "tokens", "types", "merges", "chat_template"):
        assert getattr(written, name) == getattr(vocabulary, name)
    with llama_cpp(smollm2) as peer:
        for text in [PAGE, MIXED, *PAGE.splitlines(keepends=True)]:
            assert peer(text) == tokenizer.encode(text)

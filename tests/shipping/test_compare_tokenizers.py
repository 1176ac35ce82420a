"""Tokenizers are compared as wholes: every token, and what is done to any text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamita.shipping.verify_chat import _are_spaces, compare_chats
from llamita.shipping.verify_tokenizers import PAGE, compare_tokenizers
from llamita.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from llamita.tokenizer.chat import BUILT_IN
from llamita.tokenizer.spm import SentencePieceTokenizer
from tests.tokenizer.tokenizer_texts import train_model

SENTENCES = PAGE.splitlines() * 8
UNSEEN = ["zyzzyva xylophone"] * 40


def found(a: Tokenizer, b: Tokenizer) -> tuple[bool | None, list[str], list[str]]:
    differences: list[str] = []
    notes: list[str] = []
    equal = compare_tokenizers(a, b, differences, notes)
    return equal, differences, notes


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer([*SENTENCES, *UNSEEN], "bpe:400").save(folder)
    return folder


def rewritten(saved: Path, folder: Path, change: Callable[[dict[str, Any]], Any]) -> Tokenizer:
    """The saved tokenizer with a changed tokenizer.json."""
    load_tokenizer(saved).save(folder)
    definition = json.loads((saved / "tokenizer.json").read_text())
    change(definition)
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    return load_tokenizer(folder)


def test_two_swapped_ids_of_tokens_in_no_text_are_a_difference(saved: Path, tmp_path: Path) -> None:
    def swap(definition: dict[str, Any]) -> None:
        vocabulary = definition["model"]["vocab"]
        used = {i for line in (*PAGE.splitlines(keepends=True), PAGE) for i in plain.encode(line)}
        x, y = [name for name, i in vocabulary.items() if i > 256 and i not in used][:2]
        vocabulary[x], vocabulary[y] = vocabulary[y], vocabulary[x]

    plain = load_tokenizer(saved)
    equal, differences, _ = found(plain, rewritten(saved, tmp_path, swap))
    assert equal is False
    assert "2 token ids stand for other bytes" in differences[0]


REPLACE_A_WORD = {"type": "Replace", "pattern": {"String": "colour"}, "content": "color"}


@pytest.mark.parametrize("normalizer", [{"type": "NFC"}, REPLACE_A_WORD])
def test_an_added_normalizer_is_a_difference(
    saved: Path, tmp_path: Path, normalizer: dict[str, Any]
) -> None:
    other = rewritten(saved, tmp_path, lambda d: d.update(normalizer=normalizer))
    for pair in ((load_tokenizer(saved), other), (other, load_tokenizer(saved))):
        equal, differences, _ = found(*pair)
        assert equal is False
        assert "text is normalized by" in differences[0]


def test_merges_in_another_order_are_seen_in_text_of_the_vocabulary(tmp_path: Path) -> None:
    """Two merges of letters that no text here holds: which one of them comes first."""
    train_tokenizer(SENTENCES, "bpe:400").save(tmp_path / "made")

    def add(definition: dict[str, Any], *merges: tuple[str, str]) -> None:
        definition["model"]["merges"] += merges
        definition["model"]["vocab"] |= {"qz": 400, "zq": 401}

    one, other = (
        rewritten(tmp_path / "made", tmp_path / name, lambda d, m=merges: add(d, *m))
        for name, merges in (
            ("one", (("q", "z"), ("z", "q"))),
            ("other", (("z", "q"), ("q", "z"))),
        )
    )
    assert found(one, one) == (True, [], [])
    equal, differences, _ = found(one, other)
    assert equal is False
    assert "has other token ids" in differences[0]


def test_other_words_for_the_same_tokenizer_are_a_note(saved: Path, tmp_path: Path) -> None:
    def wrap(definition: dict[str, Any]) -> None:
        step = definition["pre_tokenizer"]
        definition["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step]}

    equal, differences, notes = found(load_tokenizer(saved), rewritten(saved, tmp_path, wrap))
    assert equal is True
    assert differences == []
    assert len(notes) == 1
    assert "written differently, but all 400 tokens agree" in notes[0]


@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc"])
@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_sentencepiece_model_is_its_own_tokenizer_json(
    tmp_path: Path, model_type: str, rule: str
) -> None:
    model = train_model(
        SENTENCES, model_type=model_type, vocab_size=480, normalization_rule_name=rule
    )
    (tmp_path / "tokenizer.model").write_bytes(model)
    original = load_tokenizer(tmp_path)
    original.save(tmp_path / "made")
    assert found(original, load_tokenizer(tmp_path / "made")) == (True, [], [])


def test_a_sentencepiece_model_in_the_words_of_another_converter_is_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "tokenizer.model").write_bytes(train_model(SENTENCES))
    original = load_tokenizer(tmp_path)
    original.save(tmp_path / "made")

    def reword(definition: dict[str, Any]) -> None:
        merges = definition["model"]["merges"]
        definition["model"]["merges"] = [" ".join(pair) for pair in merges]
        for step in definition["normalizer"]["normalizers"]:
            if step.get("pattern") == {"Regex": " {2,}"}:
                step["pattern"] = {"Regex": "  +"}

    other = rewritten(tmp_path / "made", tmp_path / "other", reword)
    assert other.fingerprint != original.fingerprint
    equal, differences, notes = found(original, other)
    assert (equal, differences) == (True, [])
    assert "written differently" in notes[0]


def test_another_end_token_is_a_note(saved: Path, tmp_path: Path) -> None:
    load_tokenizer(saved).save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "pad_token": "a"}))
    equal, differences, notes = found(load_tokenizer(saved), load_tokenizer(tmp_path))
    assert (equal, differences) == (True, [])
    assert any("pad_token_id" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "equal"), [("<|reserved_special_token_7|>", True), ("<|other|>", False)]
)
def test_spare_control_tokens_may_have_other_names(
    name: str, equal: bool, saved: Path, tmp_path: Path
) -> None:
    def rename(definition: dict[str, Any]) -> None:
        for token in definition["added_tokens"]:
            if token["content"] == "<|im_end|>":
                token["content"] = name
        vocabulary = definition["model"]["vocab"]
        vocabulary[name] = vocabulary.pop("<|im_end|>")

    same, differences, notes = found(load_tokenizer(saved), rewritten(saved, tmp_path, rename))
    assert same is equal
    assert "im_end" in " ".join(notes if equal else differences)


@pytest.mark.parametrize("prefix", [True, False])
def test_other_spaces_beside_the_control_tokens_of_a_chat_are_a_note(
    prefix: bool, tmp_path: Path
) -> None:
    options = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    symbols = list(BUILT_IN["chatml-tools"].control_tokens)
    model = train_model(
        SENTENCES, user_defined_symbols=symbols, add_dummy_prefix=prefix, vocab_size=700, **options
    )
    native = SentencePieceTokenizer(model).with_chat_template(BUILT_IN["chatml-tools"].template)
    native.save(tmp_path)
    differences: list[str] = []
    notes: list[str] = []
    assert compare_chats(native, load_tokenizer(tmp_path), differences, notes)
    assert differences == []
    assert bool(notes) is prefix


def test_other_tokens_of_the_same_text_are_more_than_spaces(saved: Path) -> None:
    tokenizer = load_tokenizer(saved)
    end = tokenizer.special_tokens["<|im_end|>"]
    whole, spaced = tokenizer.encode("the"), tokenizer.encode(" the")
    letters = [token_id for letter in "the" for token_id in tokenizer.encode(letter)]
    assert whole != letters
    for other, expected in (
        ([*spaced, end], True),
        ([*letters, end], False),
        ([*whole, end, end], False),
        ([end, *whole], False),
        ([*tokenizer.encode("then"), end], False),
    ):
        assert _are_spaces(tokenizer, tokenizer, [*whole, end], other) is expected

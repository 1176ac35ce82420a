"""Tokenizers that change text, on their way to GGUF, which has no normalizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamita.config import ModelConfig
from llamita.errors import TokenizerError
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.shipping.convert import Conversion, convert
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.load import load_tokenizer
from llamita.tokenizer.normalizer import normalizer_steps, without_normalizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from llamita.tokenizer.train import train_tokenizer
from tests.tokenizer.tokenizer_texts import MIXED, WORDS, train_model

PLAIN = "two llamas walk home, and see a tree"


def save_model(tokenizer: Tokenizer, directory: Path) -> Path:
    config = ModelConfig(tokenizer.vocab_size, 32, 48, 1, 2, max_position_embeddings=256)
    save_model_directory(Transformer(config).initialize(0), directory, tokenizer)
    return directory


def with_normalizer(directory: Path, normalizer: dict[str, object]) -> None:
    path = directory / "tokenizer.json"
    definition = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**definition, "normalizer": normalizer}), encoding="utf-8")


def trained() -> Tokenizer:
    return train_tokenizer([WORDS, MIXED], "bpe:350")


def old_sentencepiece() -> SentencePieceTokenizer:
    """With the normalizer that SentencePiece trains by default."""
    symbols = ["<|im_start|>", "<|im_end|>"]
    return SentencePieceTokenizer(train_model([WORDS, MIXED], user_defined_symbols=symbols))


def test_nfc_is_left_out_with_a_note(tmp_path: Path) -> None:
    source = save_model(trained(), tmp_path / "model")
    with_normalizer(source, {"type": "NFC"})
    report = convert(Conversion(source, tmp_path / "model.gguf"))
    assert report["status"] in ("verified", "self-check")
    assert any("(NFC) is left out" in note for note in report["notes"])


def test_other_steps_are_refused_by_name_and_left_out_when_asked(tmp_path: Path) -> None:
    source = save_model(trained(), tmp_path / "model")
    with_normalizer(source, {"type": "Lowercase"})
    with pytest.raises(TokenizerError, match="Lowercase") as caught:
        convert(Conversion(source, tmp_path / "model.gguf"))
    assert "--drop-normalizer" in str(caught.value.hint)
    assert not (tmp_path / "model.gguf").exists()
    report = convert(Conversion(source, tmp_path / "model.gguf", drop_normalizer=True))
    assert report["token_ids_equal"]
    assert any("(Lowercase) is left out" in note for note in report["notes"])


@pytest.mark.parametrize("as_json", [False, True])
def test_sentencepieces_default_normalizer_can_be_left_out(as_json: bool, tmp_path: Path) -> None:
    tokenizer: Tokenizer = old_sentencepiece()
    if as_json:
        (tmp_path / "saved").mkdir()
        tokenizer.save(tmp_path / "saved")
        tokenizer = load_tokenizer(tmp_path / "saved")
    assert normalizer_steps(tokenizer)
    plain = without_normalizer(tokenizer)
    assert normalizer_steps(plain) == []
    assert plain.encode(PLAIN) == tokenizer.encode(PLAIN)
    assert plain.decode(plain.encode("½  two")) == "½  two"
    source = save_model(tokenizer, tmp_path / "model")
    report = convert(Conversion(source, tmp_path / "model.gguf", drop_normalizer=True))
    assert report["status"] in ("verified", "self-check"), report["differences"]
    assert load_tokenizer_of(tmp_path / "model.gguf").encode(PLAIN) == tokenizer.encode(PLAIN)


def load_tokenizer_of(path: Path) -> Tokenizer:
    from llamita.formats.detect import load_checkpoint
    from llamita.tokenizer.load import checkpoint_tokenizer

    tokenizer = checkpoint_tokenizer(load_checkpoint(path))
    assert tokenizer is not None
    return tokenizer


def test_a_tokenizer_that_changes_nothing_has_no_steps() -> None:
    for kind in ("bpe:350", "spm:400"):
        assert normalizer_steps(train_tokenizer([WORDS, MIXED], kind)) == []

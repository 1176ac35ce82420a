"""Tokenizers on their way: what a layout's file alone would not say goes beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import llamita
from llamita.cli.main import run
from llamita.errors import TokenizerError
from llamita.formats.armgpt import feed_forward_width
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.export import sentencepiece_files
from llamita.tokenizer.load import checkpoint_tokenizer
from llamita.tokenizer.spm import SentencePieceTokenizer
from tests.shipping.conftest import SENTENCES, run_conversion, small_model
from tests.tokenizer.tokenizer_texts import train_model

OPTIONS = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}


def sentencepiece(**config: object) -> SentencePieceTokenizer:
    """A model with a BOS and what its tokenizer_config.json says."""
    model = train_model(SENTENCES, vocab_size=480, **OPTIONS)
    return SentencePieceTokenizer(model, {"tokenizer_config.json": json.dumps(config).encode()})


FRAMES = {
    "no BOS": {"add_bos_token": False},
    "BOS and EOS": {"add_eos_token": True},
    "nothing but EOS": {"add_bos_token": False, "add_eos_token": True},
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("target", ["hermes", "meta"])
def test_what_frames_a_text_stays_so(
    target: str, frame: str, tmp_path: Path, no_runtime: None
) -> None:
    tokenizer = sentencepiece(**FRAMES[frame])
    save_model_directory(small_model(tokenizer), tmp_path / "in", tokenizer)
    report = run_conversion(tmp_path / "in", tmp_path / "out", target=target)
    assert report["differences"] == []
    back = llamita.load(tmp_path / "out").tokenizer
    assert back is not None
    ids = tokenizer.encode("some words", add_special_tokens=True)
    assert back.encode("some words", add_special_tokens=True) == ids
    assert any("own programs do as they always do" in note for note in report["notes"])
    assert "tokenizer_config.json" in report["files"]


def test_a_tokenizer_as_the_layout_has_it_needs_no_more(tmp_path: Path, no_runtime: None) -> None:
    tokenizer = sentencepiece()
    save_model_directory(small_model(tokenizer), tmp_path / "in", tokenizer)
    report = run_conversion(tmp_path / "in", tmp_path / "out", target="hermes")
    assert report["differences"] == []
    assert report["files"] == ["checkpoint.pt", "tokenizer.model"]


def test_a_frame_that_no_config_says_is_refused() -> None:
    tokenizer = sentencepiece()
    tokenizer.bos_prefix = [1, 1]
    with pytest.raises(TokenizerError, match="its bos_prefix would be"):
        sentencepiece_files(tokenizer)


def armgpt(path: Path) -> Path:
    """A model of ArmGPT's whose SentencePiece model has a BOS, which it never uses."""
    tokenizer = sentencepiece(add_bos_token=False)
    fields = {"intermediate_size": feed_forward_width(32), "num_key_value_heads": 4}
    save_model_directory(small_model(tokenizer, **fields), path / "hf", tokenizer)
    run_conversion(path / "hf", path / "arm", target="armgpt")
    return path / "arm"


@pytest.mark.parametrize("target", ["hermes", "meta"])
def test_a_model_of_armgpt_still_has_no_bos(target: str, tmp_path: Path, no_runtime: None) -> None:
    source = armgpt(tmp_path)
    report = run_conversion(source, tmp_path / "out", target=target)
    assert report["differences"] == []
    tokenizer = checkpoint_tokenizer(load_checkpoint(tmp_path / "out"))
    assert tokenizer is not None
    assert tokenizer.bos_prefix == []


def test_a_tokenizer_that_is_named_must_be_there(
    hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    arguments = [str(hf), str(tmp_path / "out"), "--to", "hf"]
    assert run(["convert", *arguments, "--tokenizer", str(tmp_path / "empty")]) == 2
    assert "there is no tokenizer in" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_notes_of_the_writer_reach_a_report_without_verification(
    bpe_tokenizer: Tokenizer, tmp_path: Path, no_runtime: None
) -> None:
    model = small_model(bpe_tokenizer, intermediate_size=40)
    save_model_directory(model, tmp_path / "in", bpe_tokenizer)
    notes = [
        run_conversion(
            tmp_path / "in", tmp_path / f"{verify}.gguf", quantization="q8_0", verify=verify
        )["notes"]
        for verify in (False, True)
    ]
    assert sum("rows of 40 numbers" in note for note in notes[0]) == 1
    assert sum("rows of 40 numbers" in note for note in notes[1]) == 1


def test_what_was_not_compared_is_not_called_the_same(hf: Path, tmp_path: Path) -> None:
    report = run_conversion(hf, tmp_path / "out", target="hf", verify=False)
    assert report["same"] is None

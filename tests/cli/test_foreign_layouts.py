"""The commands take checkpoints of every layout as MODEL."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from llamita.cli.main import run
from llamita.formats.detect import load_checkpoint
from llamita.formats.hermes import write_hermes
from llamita.tokenizer.base import Tokenizer
from llamita.tokenizer.train import train_tokenizer
from tests.formats.golden_cases import golden, random_checkpoint


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(["the cat sat on the mat, é 🦙 " * 20], "bpe:270")


@pytest.fixture
def bare(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A Hermes state dict alone, and a tokenizer in another folder."""
    write_hermes(random_checkpoint(vocab_size=tokenizer.vocab_size), tmp_path / "full.pt")
    (tmp_path / "models").mkdir()
    state = torch.load(tmp_path / "full.pt", weights_only=True)["model"]
    torch.save(state, tmp_path / "models" / "bare.pt")
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    return tmp_path / "models" / "bare.pt"


@pytest.mark.parametrize("name", ["hermes-tied", "armgpt", "meta-llama-2-shards-mha"])
def test_inspect_says_which_layout_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    case = golden(name)
    assert run(["inspect", str(case.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == case.kind
    config = load_checkpoint(case.path).config
    assert found["config"]["hidden_size"] == 64
    assert found["parameters"] == config.count_parameters()
    assert found["tokenizer"] is None


def test_generate_takes_a_tokenizer_and_what_the_file_lacks(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", str(bare), "the cat", "--override", "num_attention_heads=8"]) == 2
    assert "tokenizer" in capsys.readouterr().err
    arguments = ["--override", "num_attention_heads=8", "--temperature", "0", "--max-tokens", "4"]
    arguments += ["--tokenizer", str(bare.parent.parent / "tokenizer")]
    assert run(["generate", str(bare), "the cat", *arguments, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["token_ids"]) == 4


def test_eval_takes_a_tokenizer(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bare.parent.parent / "text.txt").write_text("the cat sat on the mat\n" * 20)
    arguments = ["--override", "num_attention_heads=8", "--json"]
    arguments += ["--tokenizer", str(bare.parent.parent / "tokenizer")]
    arguments += ["--text", str(bare.parent.parent / "text.txt")]
    assert run(["eval", str(bare), *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 460


def test_verify_finds_a_model_the_same_in_two_layouts(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full, tokenizer = bare.parent.parent / "full.pt", str(bare.parent.parent / "tokenizer")
    arguments = [str(full), str(bare), "--override", "num_attention_heads=8", "--json"]
    arguments += ["--override", "max_position_embeddings=96"]
    arguments += ["--tokenizer", tokenizer, "--tokenizer-b", tokenizer]
    assert run(["verify", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["token_ids_equal"] is True


def test_a_preset_that_does_not_fit_exits_2(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["inspect", str(bare)], ["generate", str(bare), "x"]):
        assert run([*command, "--preset", "270m"]) == 2
        assert "not of the preset '270m'" in capsys.readouterr().err
    assert run(["verify", str(bare.parent.parent / "full.pt"), str(bare), "--preset-b", "1b"]) == 2
    assert "not of the preset '1b'" in capsys.readouterr().err


def test_a_copy_with_a_changed_epsilon_is_another_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(golden("hermes-tied").path, tmp_path / "a.pt")
    file = torch.load(tmp_path / "a.pt", weights_only=True)
    file["config"]["rms_norm_eps"] = 1e-2
    torch.save(file, tmp_path / "b.pt")
    assert run(["verify", str(tmp_path / "a.pt"), str(tmp_path / "b.pt")]) == 1
    assert "rms_norm_eps is 1e-06 in A and 0.01 in B" in capsys.readouterr().out

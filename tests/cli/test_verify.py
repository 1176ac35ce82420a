"""`llamita verify A B`: exit 0 for the same model, 1 for another, 2 for none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from llamita.cli.main import run
from llamita.config import ModelConfig
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.tokenizer.train import train_tokenizer


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `a`, the same model again as `b`, one with a changed weight as `c`."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer(["the cat sat on the mat, é 🦙 " * 20], "bpe:270")
    config = ModelConfig(tokenizer.vocab_size, 16, 24, 1, 2, max_position_embeddings=96)
    model = Transformer(config).initialize(0)
    save_model_directory(model, folder / "a", tokenizer)
    save_model_directory(model, folder / "b", tokenizer)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0].add_(0.5)
    save_model_directory(model, folder / "c", tokenizer)
    return folder


def verify(models: Path, *arguments: str) -> int:
    return run(["verify", *(str(models / a) if len(a) == 1 else a for a in arguments)])


def test_the_same_model_twice_exits_0(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(models, "a", "b") == 0
    out, err = capsys.readouterr()
    assert "same model" in out
    assert "yes" in out
    assert err == ""


def test_another_model_exits_1_and_says_what_differs(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(models, "a", "c") == 1
    out, err = capsys.readouterr()
    assert "logits differ" in out
    assert "are not the same model" in err


@pytest.mark.parametrize(("other", "same"), [("b", True), ("c", False)])
def test_json_is_one_object_with_the_keys_of_the_design(
    models: Path, other: str, same: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(models, "a", other, "--json") == (0 if same else 1)
    found = json.loads(capsys.readouterr().out)
    assert found["same"] is same
    assert (found["max_logit_gap"] == 0) is same
    assert found["token_ids_equal"] is True
    assert isinstance(found["greedy_equal"], bool)


def test_the_tolerance_is_the_users(models: Path) -> None:
    assert verify(models, "a", "c", "--tolerance", "100") == 0


def test_an_override_is_set_on_both(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(models, "a", "b", "--override", "rope_theta=-1") == 2
    assert "rope_theta" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("a", "x"), ("x", "a"), ("a", "b", "--tolerance", "nan")])
def test_wrong_use_exits_2(models: Path, arguments: tuple[str, ...]) -> None:
    assert verify(models, *arguments) == 2


def test_a_tokenizer_with_a_normalizer_more_exits_1(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(models / "a", tmp_path / "n")
    path = tmp_path / "n" / "tokenizer.json"
    definition = json.loads(path.read_text())
    definition["normalizer"] = {"type": "NFC"}
    path.write_text(json.dumps(definition))
    assert verify(models, "a", str(tmp_path / "n"), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["token_ids_equal"] is False
    assert "NFC" in found["differences"][0]

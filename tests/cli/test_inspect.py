"""`llamita inspect PATH`: models, runs and data folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from llamita.cli.main import run
from llamita.config import ModelConfig
from llamita.data.prepare import prepare
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from llamita.tokenizer.load import load_tokenizer
from llamita.training.settings.recipe import Recipe
from llamita.training.settings.recipe_file import save_recipe

TEXT = "the cat sat on the mat, é 🦙 and so did the other cat\n" * 30


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect")
    for number in range(12):
        (folder / f"{number}.txt").write_text(f"{number} {TEXT}")
    prepare([folder], folder / "data", tokenizer="bpe:270")
    return folder / "data"


@pytest.fixture(scope="module")
def model(data: Path) -> Path:
    config = ModelConfig(270, 16, 24, 1, 2, eos_token_id=0)
    directory = data.parent / "model"
    save_model_directory(
        Transformer(config).initialize(0), directory, load_tokenizer(data), dtype=torch.bfloat16
    )
    return directory


@pytest.fixture
def a_run(model: Path, tmp_path: Path) -> Path:
    config = ModelConfig(270, 16, 24, 1, 2)
    save_model_directory(Transformer(config).initialize(0), tmp_path / "run" / "latest")
    recipe = Recipe()
    recipe = recipe.model_copy(
        update={"length": recipe.length.model_copy(update={"steps": 30, "minutes": None})}
    )
    save_recipe(recipe, tmp_path / "run" / "recipe.toml")
    lines = [
        {"step": 10, "validation_bits_per_byte": 2.0},
        {"step": 20, "validation_bits_per_byte": 2.5},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "run" / "metrics.jsonl").write_text(text)
    return tmp_path / "run"


def inspect(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["inspect", str(path), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {"format", "config", "parameters", "tokenizer"} <= found.keys()
    return found


def test_a_model_is_described(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect(model, capsys)
    parameters = ModelConfig(270, 16, 24, 1, 2).count_parameters()
    assert found["format"] == "hf"
    assert found["config"]["hidden_size"] == 16
    assert found["parameters"] == parameters
    assert (found["dtype"], found["bytes"]) == ("bfloat16", 2 * parameters)
    assert found["tokenizer"]["kind"] == "bpe"
    assert found["tokenizer"]["vocab_size"] == 270
    assert "<|endoftext|>" in found["tokenizer"]["special_tokens"]


def test_a_run_is_described_with_its_state(a_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect(a_run, capsys)
    assert found["format"] == "run"
    assert found["parameters"] == ModelConfig(270, 16, 24, 1, 2).count_parameters()
    assert found["tokenizer"] is None
    assert found["run"] == {
        "step": 20,
        "steps": 30,
        "validation_bits_per_byte": 2.5,
        "best_validation_bits_per_byte": 2.0,
    }


def test_data_is_described_by_its_manifest(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect(data, capsys)
    assert found["format"] == "data"
    assert (found["config"], found["parameters"]) == (None, None)
    assert found["tokenizer"]["kind"] == "bpe"
    assert found["data"]["train"]["documents"] + found["data"]["val"]["documents"] == 12


def test_the_table_names_what_the_json_holds(
    model: Path, data: Path, a_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, words in {
        model: ["hf", "bfloat16", "hidden_size", "bpe, 270 tokens", "<|endoftext|>"],
        data: ["documents", "bytes per token", "uint16"],
        a_run: ["20 of 30 steps", "2.500 bits per byte, best 2.000"],
    }.items():
        assert run(["inspect", str(path)]) == 0
        out = capsys.readouterr().out
        assert all(word in out for word in words), out


def test_an_override_shows_in_the_config(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model), "--json", "--override", "rope_theta=5e5"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["rope_theta"] == 5e5


def test_what_is_nothing_exits_2_and_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nothing", "empty"):
        assert run(["inspect", str(tmp_path / name)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert name in err


def test_token_bins_are_shown_with_their_mask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    itos = {"0": "<|endoftext|>", "1": "a", "2": "b"}
    table = {"type": "char", "itos": itos, "special_tokens": ["<|endoftext|>"]}
    (tmp_path / "char.json").write_text(json.dumps(table))
    (tmp_path / "train_char.bin").write_bytes(bytes([1, 0, 2, 0, 0, 0]))
    (tmp_path / "train_mask_char.bin").write_bytes(bytes([0, 1, 1]))
    assert run(["inspect", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "token bins" in shown
    assert "1 documents, 2 bytes, 3 tokens, 2 of them to be learned (mask)" in shown
    assert "train_char.bin, train_mask_char.bin" in shown
    assert run(["inspect", str(tmp_path / "train_char.bin"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == "token bins"
    assert found["tokenizer"]["kind"] == "char"
    assert found["data"]["fingerprint"] in shown
    (tmp_path / "train_char.bin").write_bytes(bytes([1, 0, 9, 0]))
    (tmp_path / "train_mask_char.bin").unlink()
    assert run(["inspect", str(tmp_path)]) == 2
    assert "token id 9" in capsys.readouterr().err

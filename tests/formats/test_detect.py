"""A path is told by what it holds, and what holds no model is told why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from llamita.config import ModelConfig
from llamita.errors import CheckpointError
from llamita.formats.detect import load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A RUN whose latest and best differ."""
    for seed, name in enumerate(("latest", "best")):
        config = ModelConfig(40, 16, 24, 1, 2, bos_token_id=seed)
        save_model_directory(Transformer(config).initialize(seed), tmp_path / "run" / name)
    (tmp_path / "run" / "recipe.toml").write_text("")
    (tmp_path / "run" / "manifest.json").write_text("{}")
    return tmp_path / "run"


def test_a_run_is_its_latest_model(run: Path) -> None:
    checkpoint = load_checkpoint(run)
    assert checkpoint.path == run / "latest"
    assert checkpoint.config.bos_token_id == 0


def test_the_best_model_of_a_run_is_a_model_directory(run: Path) -> None:
    assert load_checkpoint(run / "best").config.bos_token_id == 1


def test_the_name_of_a_directory_does_not_matter(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "best", tmp_path / "thing.gguf")
    assert load_checkpoint(str(tmp_path / "thing.gguf")).format == "hf"


def test_a_run_without_a_model_yet_says_so(run: Path) -> None:
    shutil.rmtree(run / "latest")
    with pytest.raises(CheckpointError, match="has not saved a model yet"):
        load_checkpoint(run)


def test_what_is_no_model_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.gguf").write_bytes(b"some bytes")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "manifest.json").write_text("{}")
    (tmp_path / "data" / "train-00000.bin").write_bytes(b"\0\0")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("")
    for name, words in {
        "nothing": "there is nothing at",
        "empty": "is an empty folder",
        "file.gguf": "is a file, not a model",
        "data": "is a DATA folder",
        "other": "has no config.json",
    }.items():
        with pytest.raises(CheckpointError, match=words) as error:
            load_checkpoint(tmp_path / name)
        assert str(tmp_path / name) in error.value.message
        assert error.value.hint

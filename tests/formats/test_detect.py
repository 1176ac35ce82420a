"""A path is told by what it holds, and what holds no model is told why."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import llamita
from llamita.config import ModelConfig
from llamita.errors import CheckpointError, ConfigError
from llamita.formats.detect import find_model, load_checkpoint
from llamita.formats.huggingface import save_model_directory
from llamita.model.transformer import Transformer
from tests.formats.golden_cases import TOLERANCE, golden


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


@pytest.mark.parametrize("name", ["model.gguf", "config.json", "weights", "a b.safetensors"])
@pytest.mark.parametrize("case", ["hermes-tied", "armgpt-compiled-prefix"])
def test_a_torch_file_is_told_by_its_content(case: str, name: str, tmp_path: Path) -> None:
    shutil.copy(golden(case).path, tmp_path / name)
    assert load_checkpoint(tmp_path / name).format == golden(case).kind


def test_a_folder_means_the_one_checkpoint_in_it(tmp_path: Path) -> None:
    case = golden("hermes-tied")
    shutil.copy(case.path, tmp_path / "thing")
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / ".hidden.pt").write_bytes(case.path.read_bytes())
    assert case.gap(llamita.load(tmp_path, device="cpu")) <= TOLERANCE
    shutil.copy(golden("armgpt").path, tmp_path / "other.bin")
    with pytest.raises(CheckpointError, match=r"2 checkpoint files: other\.bin, thing"):
        load_checkpoint(tmp_path)


def test_a_config_outranks_the_shards_beside_it(run: Path) -> None:
    shutil.copy(golden("meta-llama-1-shard").path / "consolidated.00.pth", run / "best")
    assert load_checkpoint(run / "best").format == "hf"


def test_weights_of_huggingface_alone_say_what_they_lack(run: Path, tmp_path: Path) -> None:
    state = Transformer(ModelConfig(40, 16, 24, 1, 2)).state_dict()
    torch.save(dict(state), tmp_path / "bare.pt")
    save_file({"a": torch.zeros(3)}, tmp_path / "bare.safetensors")
    for name in ("bare.pt", "bare.safetensors"):
        with pytest.raises(CheckpointError, match="without a config") as error:
            load_checkpoint(tmp_path / name)
        assert error.value.hint
        assert "config.json" in error.value.hint
    with pytest.raises(CheckpointError, match="without a config") as error:
        load_checkpoint(run / "best" / "model.safetensors")
    assert error.value.hint == f"MODEL is the folder: {run / 'best'}"


def test_a_shard_alone_says_that_the_folder_is_meant() -> None:
    with pytest.raises(CheckpointError, match="shard of a Meta folder"):
        load_checkpoint(golden("meta-llama-1-shard").path / "consolidated.00.pth")


def test_half_of_a_meta_folder_says_which_half_is_missing(tmp_path: Path) -> None:
    source = golden("meta-llama-1-shard").path
    (tmp_path / "weights").mkdir()
    (tmp_path / "params").mkdir()
    shutil.copy(source / "consolidated.00.pth", tmp_path / "weights")
    shutil.copy(source / "params.json", tmp_path / "params")
    for name, words in {"weights": "no params.json", "params": "no consolidated"}.items():
        with pytest.raises(CheckpointError, match=words):
            load_checkpoint(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"LITERTLM" + bytes(100), "LiteRT-LM"),
        (b"\x18\0\0\0TFL3" + bytes(100), "TFLite"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
        (b"lmgg" + bytes(100), "before GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"\x1f\x8b\x08" + bytes(100), "gzip"),
        (b"<!DOCTYPE html>", "web page"),
        (bytes(257) + b"ustar" + bytes(200), "tar archive"),
        (b'{"model_type": "llama"}', "JSON"),
        (b"", "empty file"),
    ],
)
def test_files_of_other_kinds_are_refused_by_name(
    content: bytes, words: str, tmp_path: Path
) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(CheckpointError, match=words) as error:
        load_checkpoint(tmp_path / "model.gguf")
    assert error.value.hint


def test_a_zip_archive_that_is_not_pytorchs_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(CheckpointError, match="zip archive"):
        load_checkpoint(tmp_path / "model.pt")


@pytest.mark.parametrize("content", [[1, 2], {"epoch": 3}, {}, torch.zeros(3), {"model": {}}])
def test_torch_files_without_a_model_are_named(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "thing.pt")
    with pytest.raises(CheckpointError, match=r"thing\.pt"):
        load_checkpoint(tmp_path / "thing.pt")


def test_a_preset_is_for_bare_weights(run: Path) -> None:
    hermes, armgpt = golden("hermes-tied").path, golden("armgpt").path
    for path in (run, hermes, armgpt, golden("meta-llama-1-shard").path):
        with pytest.raises(ConfigError, match=r"the preset '1b' is for"):
            load_checkpoint(path, preset="1b")
    with pytest.raises(ConfigError, match="no preset 'huge'"):
        load_checkpoint(hermes, preset="huge")


def test_a_tokenizer_that_is_given_is_the_models(tmp_path: Path) -> None:
    shutil.copy(golden("hermes-tied").path, tmp_path / "model.pt")
    assert load_checkpoint(tmp_path / "model.pt").tokenizer == tmp_path
    given = load_checkpoint(tmp_path / "model.pt", tokenizer=tmp_path / "own")
    assert given.tokenizer == tmp_path / "own"


def test_a_name_of_the_hub_is_told_that_nothing_is_downloaded() -> None:
    with pytest.raises(CheckpointError, match="there is nothing at") as caught:
        find_model(Path("HuggingFaceTB/SmolLM2-135M"))
    assert "downloads nothing" in (caught.value.hint or "")

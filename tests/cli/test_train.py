"""`llamita train`: flags become settings, results go to stdout, the way there to stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamita.cli.main import run
from llamita.training.settings.recipe_file import load_recipe

QUICK = [
    "--set", "batch.context_length=32", "--set", "batch.sequences=4",
    "--set", "watch.validations=1", "--set", "watch.validation_tokens=256",
    "--set", "watch.sample_tokens=4",
    "--set", "machine.precision=float32", "--set", "machine.compile=off",
]  # fmt: skip


def test_flags_become_settings_and_json_names_the_model(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    flags = ["--preset", "tiny", "--steps", "3", "--seed", "5", "--json", *QUICK]
    assert run(["train", str(data), "-o", str(out), *flags]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == 3
    assert Path(result["model"]) == out / "latest"
    recipe = load_recipe(out / "recipe.toml")
    assert (recipe.seed, recipe.length.steps, recipe.model["preset"]) == (5, 3, "tiny")


def test_validation_and_sample_are_said_on_stderr(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--preset", "tiny", "--steps", "2", *QUICK]
    assert run(["train", str(data), "-o", str(tmp_path / "run"), *flags]) == 0
    printed = capsys.readouterr()
    assert "validation loss" in printed.err
    assert "llamita generate" in printed.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--set", "optimizer.learning_rat=1"], "learning_rate"),
        (["--steps", "3", "--minutes", "1"], "steps and minutes"),
        (["--preset", "huge"], "huge"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--resume"], "no run to resume"),
        (["--steps", "0"], "steps is 0"),
        (["--set", "machine.device=tpu"], "tpu"),
    ],
)
def test_a_mistake_is_one_clear_error_and_leaves_no_folder(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    words: str,
) -> None:
    assert run(["train", str(data), "-o", str(tmp_path / "run"), *flags]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""
    assert not (tmp_path / "run").exists()


def test_data_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", str(tmp_path / "nowhere"), "-o", str(tmp_path / "run")]) == 2
    assert "nowhere" in capsys.readouterr().err

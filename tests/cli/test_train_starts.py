"""`llamita train`: what gives the model its shape and its first weights, through the flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamita.cli.main import run
from llamita.formats.huggingface import read_model_config
from llamita.training.settings.recipe_file import load_recipe

QUICK = [
    "--set", "batch.context_length=32", "--set", "batch.sequences=4",
    "--set", "watch.validations=1", "--set", "watch.validation_tokens=256",
    "--set", "watch.sample_tokens=0", "--steps", "2",
    "--set", "machine.precision=float32", "--set", "machine.compile=off",
]  # fmt: skip


@pytest.fixture(scope="module")
def base(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("starts") / "base"
    assert run(["train", str(data), "-o", str(out), "--preset", "tiny", *QUICK]) == 0
    return out


def test_params_gives_a_model_of_that_size(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--params", "200k", "--json", *QUICK]
    assert run(["train", str(data), "-o", str(tmp_path / "run"), *arguments]) == 0
    parameters = json.loads(capsys.readouterr().out)["parameters"]
    assert parameters == pytest.approx(200_000, rel=0.03)
    assert load_recipe(tmp_path / "run" / "recipe.toml").model == {"params": "200k"}
    assert run(["train", str(data), "-o", str(tmp_path / "run"), *arguments]) == 0


def test_init_goes_on_from_a_run_and_resumes_without_it(
    data: Path, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "again"
    command = ["train", str(data), "-o", str(again), "--init", str(base), *QUICK]
    assert run(command) == 0
    assert "the data's tokenizer is the model's" in capsys.readouterr().err
    assert load_recipe(again / "recipe.toml").init == str(base)
    assert run(command) == 0
    assert run(["train", str(data), "-o", str(again)]) == 0
    assert "finished before" in capsys.readouterr().out


def test_init_takes_a_gguf_with_data_prepared_for_it(
    data: Path, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, prepared, out = tmp_path / "model.gguf", tmp_path / "data", tmp_path / "run"
    assert run(["convert", str(base), str(model), "--quant", "q8_0", "--no-verify"]) == 0
    texts = str(data.parent / "texts")
    assert run(["prepare", texts, "-o", str(prepared), "--tokenizer", str(model)]) == 0
    assert run(["train", str(prepared), "-o", str(out), "--init", str(model), *QUICK]) == 0
    assert "the data's tokenizer is the model's" in capsys.readouterr().err
    ours, theirs = (read_model_config(run_ / "latest")[0] for run_ in (out, base))
    assert ours == theirs


def test_a_teacher_and_its_settings_reach_the_recipe(
    data: Path, base: Path, tmp_path: Path
) -> None:
    flags = ["--preset", "tiny", "--teacher", str(base), "--set", "teacher.temperature=2", *QUICK]
    assert run(["train", str(data), "-o", str(tmp_path / "run"), *flags]) == 0
    teacher = load_recipe(tmp_path / "run" / "recipe.toml").teacher
    assert teacher is not None
    assert (teacher.model, teacher.temperature, teacher.weight) == (str(base), 2.0, 0.5)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--params", "1m", "--preset", "tiny"], "--preset tiny and --params 1m are both given"),
        (["--params", "1m", "--init", "x"], "--params 1m and --init x"),
        (["--preset", "tiny", "--init", "x"], "--preset tiny and --init x"),
        (["--params", "lots"], "lots"),
        (["--params", "10k", "--set", "model.vocab_size=5000"], "5,000 alone takes 40,000"),
        (["--init", "nowhere/at-all"], "nowhere/at-all"),
        (["--teacher", "nowhere/at-all"], "nowhere/at-all"),
        (["--set", "teacher.weight=1"], "teacher.model"),
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
    assert "Traceback" not in printed.err
    assert not (tmp_path / "run").exists()


def test_a_shape_flag_replaces_the_shape_of_a_recipe_file(data: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[model]\npreset = "small"\nuse_qk_norm = true\n')
    flags = ["--config", str(recipe), "--params", "200k", *QUICK]
    assert run(["train", str(data), "-o", str(tmp_path / "run"), *flags]) == 0
    assert load_recipe(tmp_path / "run" / "recipe.toml").model == {
        "params": "200k", "use_qk_norm": True
    }  # fmt: skip


def test_help_explains_the_ways_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    for flag in ("--params SIZE", "--init MODEL", "--teacher MODEL", "smollm2-135m", "tinyllama"):
        assert flag in words


def test_a_recorded_recipe_is_begun_with_a_model_and_again_without(
    data: Path, base: Path, tmp_path: Path
) -> None:
    with_model, fresh = tmp_path / "with", tmp_path / "fresh"
    recorded = ["--config", str(base / "recipe.toml"), "--init", str(base)]
    assert run(["train", *recorded, "-o", str(with_model)]) == 0
    recipe = load_recipe(with_model / "recipe.toml")
    assert (recipe.init, recipe.model) == (str(base), {})
    again = ["--config", str(with_model / "recipe.toml"), "--preset", "tiny"]
    assert run(["train", *again, "-o", str(fresh)]) == 0
    assert load_recipe(fresh / "recipe.toml") == load_recipe(base / "recipe.toml")

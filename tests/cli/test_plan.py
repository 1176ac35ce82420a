"""`llamita plan`: a plan for a text, a machine and a time, whose recipe `train` takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from llamita.cli.main import run
from llamita.training.settings.recipe_file import load_recipe
from tests.conftest import write_documents

QUICK = ["--minutes", "5", "--measure-seconds", "1"]
KEYS = {
    "parameters", "tokens", "steps", "seconds", "ram_gb", "disk_gb", "bits_per_byte", "recipe",
}  # fmt: skip


def test_the_recipe_of_a_plan_for_data_is_all_that_training_needs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = tmp_path / "plan.toml"
    assert run(["plan", str(data), *QUICK, "--json", "--recipe", str(toml)]) == 0
    printed = capsys.readouterr().out
    plan = json.loads(printed)
    assert plan.keys() >= KEYS
    assert plan["prepare"] == {}
    assert 0 < plan["bits_per_byte_low"] < plan["bits_per_byte"] < plan["bits_per_byte_high"]
    (tmp_path / "plan.json").write_text(printed)
    (tmp_path / "recipe.json").write_text(json.dumps(plan["recipe"]))
    recipes = [load_recipe(tmp_path / name) for name in ("plan.json", "recipe.json", "plan.toml")]
    assert recipes[0] == recipes[1] == recipes[2]
    assert recipes[0].length.steps == plan["steps"]
    out = tmp_path / "run"
    config = ["--config", str(tmp_path / "plan.json"), "--steps", "2"]
    assert run(["train", "-o", str(out), *config, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == plan["parameters"]


def test_a_plan_for_text_says_how_to_prepare_it_and_the_printed_commands_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_documents(Path("texts"), 40, seed=0)
    assert run(["plan", "texts", *QUICK]) == 0
    printed = capsys.readouterr()
    assert "bits per byte" in printed.out
    assert "tokens/s" in printed.err
    prepare, train = re.findall(r"^  llamita (.*)$", printed.out, re.MULTILINE)
    assert run(prepare.split()) == 0
    assert run([*train.split(), "--steps", "1"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no TEXT to plan for"),
        (["TEXT", "--hours", "1", "--minutes", "2"], "only one can hold"),
        (["TEXT", "--minutes", "0"], "--minutes is 0"),
        (["TEXT", "--hours", "-1"], "--hours is -1"),
        (["nowhere.txt"], "nowhere.txt"),
        (["TEXT", "--recipe", "nowhere/plan.toml"], "no folder nowhere"),
        (["TEXT", "--recipe", "."], "which is a folder"),
        (["TEXT", "--hours", "1e6"], "less than 32 years"),
        (["TEXT", "--measure-seconds", "-3"], "--measure-seconds is -3"),
        (["TEXT", "--measure-seconds", "nan"], "--measure-seconds is nan"),
        (["--ranks", "8", "--device", "h100", "--hours", "2"], "--hours 2.0 is given beside"),
        (["--ranks", "8", "--device", "h100", "--tokenizer", "char"], "--tokenizer char"),
        (["--ranks", "8", "--device", "h100", "--measure-seconds", "9"], "--measure-seconds 9.0"),
        (["TEXT", "--params", "1m"], "without --ranks"),
        (["--ranks", "8"], "--device is missing"),
        (["--device", "h100"], "--ranks is missing"),
        (["--ranks", "8", "--device", "h99"], "h99"),
        (["--ranks", "0", "--device", "h100"], "ranks is 0"),
        (["TEXT", "--ranks", "8", "--device", "h100"], "without text"),
    ],
)
def test_a_mistake_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Some text.")
    arguments = [str(text) if argument == "TEXT" else argument for argument in arguments]
    assert run(["plan", *arguments]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""


def test_a_recipe_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamita.cli.plan.os.access", lambda path, mode: Path(path) != tmp_path)
    (tmp_path / "text.txt").write_text("Some text.")
    recipe = str(tmp_path / "plan.toml")
    assert run(["plan", str(tmp_path / "text.txt"), "--recipe", recipe]) == 2
    assert "nothing can be written to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"recipe": 3}', "recipe is no table"),
        ('{"length": {"steps": 3}', "as JSON"),
        ('{"lenght": {"steps": 3}}', "length"),
    ],
)
def test_a_wrong_recipe_in_json_is_one_clear_error(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    config = tmp_path / "recipe.json"
    config.write_text(text)
    assert run(["train", str(data), "-o", str(tmp_path / "run"), "--config", str(config)]) == 2
    assert words in capsys.readouterr().err


def test_data_and_text_together_are_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Some text.")
    assert run(["plan", str(data), str(text)]) == 2
    assert "prepared data, and other text" in capsys.readouterr().err


def test_a_cluster_is_planned_on_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--ranks", "8", "--device", "h100"]) == 0
    printed = capsys.readouterr().out
    assert "llama-3-8b" in printed
    assert "8 × H100" in printed
    assert run(["plan", "--ranks", "64", "--device", "h100", "--params", "1b", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["models"]["1b"]["ranks"] == 64

"""Going on with a run: to the bit, from whatever a kill left; and what is refused."""

from __future__ import annotations

import math
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from llamita.data.prepare import prepare
from llamita.errors import DataError, Interrupted, TrainingError
from llamita.training import looking
from llamita.training.records.metrics import read_metrics
from llamita.training.run import train
from llamita.training.settings.recipe import Recipe
from llamita.training.settings.recipe_file import load_recipe, save_recipe
from llamita.training.steps.compiling import has_compiler
from llamita.training.trainer import Trainer
from tests.training.recipes import small_recipe
from tests.training.runs import (
    are_same,
    assert_same_runs,
    listener,
    metrics_of,
    stop_after,
    weights_of,
)

DEAD_PROCESS = 99_999_999  # above what any system gives


@pytest.mark.parametrize(
    ("optimizer", "precision"), [("adamw", "float32"), ("muon", "float32"), ("muon", "bfloat16")]
)
def test_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(
    data: Path, tmp_path: Path, optimizer: str, precision: str
) -> None:
    recipe = small_recipe(
        f"optimizer.name={optimizer}",
        f"machine.precision={precision}",
        "model.residual_dropout=0.2",
        "model.attention_dropout=0.1",
        "batch.accumulation=2",
        steps=20,
    )
    train(data, tmp_path / "whole", recipe)
    with pytest.raises(Interrupted, match="after step 10 of 20"):
        train(data, tmp_path / "parts", recipe, observer=stop_after(10))
    assert train(data, tmp_path / "parts", recipe).steps == 20
    assert_same_runs(tmp_path / "whole", tmp_path / "parts")


def test_each_call_may_choose_how_its_memory_is_used(data: Path, tmp_path: Path) -> None:
    settings = ("model.residual_dropout=0.2",)
    train(data, tmp_path / "whole", small_recipe(*settings))
    with pytest.raises(Interrupted):
        train(data, tmp_path / "parts", small_recipe(*settings), observer=stop_after(3))
    others = ("activation_checkpointing=true", "parallel=fsdp", "check_memory=false")
    train(
        data,
        tmp_path / "parts",
        small_recipe(*settings, *(f"machine.{setting}" for setting in others)),
    )
    assert_same_runs(tmp_path / "whole", tmp_path / "parts")
    machine = load_recipe(tmp_path / "parts" / "recipe.toml").machine
    assert (machine.activation_checkpointing, machine.parallel) == (True, "fsdp")
    assert train(data, tmp_path / "parts").was_finished


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(torch.device("cpu")), reason="needs a C++ compiler")
def test_a_compiled_run_resumes_to_the_bit(data: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        "machine.compile=on",
        "model.num_hidden_layers=1",
        "model.residual_dropout=0.2",
        "batch.accumulation=2",
        steps=4,
    )
    train(data, tmp_path / "whole", recipe)
    with pytest.raises(Interrupted):
        train(data, tmp_path / "parts", recipe, observer=stop_after(2))
    train(data, tmp_path / "parts", recipe)
    assert_same_runs(tmp_path / "whole", tmp_path / "parts")


def _command(data: Path, run: Path, recipe: Recipe) -> list[str]:
    recipe_file = run.parent / "asked.toml"
    save_recipe(recipe, recipe_file)
    program = [sys.executable, "-m", "llamita", "train", str(data), "-o", str(run)]
    return [*program, "--config", str(recipe_file)]


def _wait_for_steps(run: Path, steps: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        lines = read_metrics(run / "metrics.jsonl")
        if lines and lines[-1]["step"] >= steps:
            return
        time.sleep(0.05)
    raise AssertionError("the run did not get going")


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_again_goes_on_after_ctrl_c_and_after_kill(
    data: Path, tmp_path: Path, blow: signal.Signals
) -> None:
    recipe = small_recipe(
        "watch.validations=15", "model.residual_dropout=0.2", "batch.accumulation=2", steps=60
    )
    run = tmp_path / "run"
    process = subprocess.Popen(_command(data, run, recipe), stderr=subprocess.PIPE, text=True)
    _wait_for_steps(run, 9)
    process.send_signal(blow)
    errors = process.communicate(timeout=60)[1]
    if blow == signal.SIGINT:
        assert process.returncode == 130
        assert "same command again" in errors
        assert "Traceback" not in errors
    again = subprocess.run(_command(data, run, recipe), capture_output=True, text=True, check=True)
    assert "resuming after step" in again.stderr
    train(data, tmp_path / "whole", recipe)
    assert_same_runs(tmp_path / "whole", run)


def _checkpoint_not_complete(run: Path) -> None:
    """Killed after `best/` and `latest/` were written and before the checkpoint counted."""
    (run / "checkpoints" / "step-0000006").rename(
        run / "checkpoints" / f".step-0000006.{DEAD_PROCESS}.abcdefgh.tmp"
    )


def _model_half_written(run: Path) -> None:
    shutil.copytree(run / "latest", run / f".latest.{DEAD_PROCESS}.abcdefgh.tmp")
    (run / f".latest.{DEAD_PROCESS}.abcdefgh.tmp" / "config.json").write_text('{"hid')
    _checkpoint_not_complete(run)


def _model_aside(run: Path) -> None:
    """Where directories cannot be exchanged there is a moment without `latest/`."""
    (run / "latest").rename(run / f".latest.{DEAD_PROCESS}.abcdefgh.old")


def _log_torn(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "lo')
    _checkpoint_not_complete(run)


def _log_ahead(run: Path) -> None:
    """The log is written at once, the checkpoint a little later."""
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "loss": 1.0}\n{"step": 8, "loss": 1.0}\n')


def _newest_torn(run: Path) -> None:
    path = run / "checkpoints" / "step-0000006" / "__0_0.distcp"
    path.write_bytes(path.read_bytes()[:-1])


def _no_models(run: Path) -> None:
    for name in ("latest", "best"):
        shutil.rmtree(run / name)
    _checkpoint_not_complete(run)


@pytest.mark.parametrize(
    "left",
    [
        _checkpoint_not_complete,
        _model_half_written,
        _model_aside,
        _log_torn,
        _log_ahead,
        _newest_torn,
        _no_models,
    ],
)
def test_whatever_a_kill_left_the_run_ends_as_if_there_had_been_none(
    data: Path, tmp_path: Path, left: object
) -> None:
    recipe = small_recipe("watch.validations=3", "model.residual_dropout=0.2", steps=9)
    train(data, tmp_path / "whole", recipe)
    run = tmp_path / "killed"
    with pytest.raises(Interrupted):
        train(data, run, recipe, observer=stop_after(6))
    left(run)  # type: ignore[operator]
    train(data, run, recipe)
    assert_same_runs(tmp_path / "whole", run)
    assert not list(run.rglob("*.tmp"))
    assert not list(run.rglob("*.old"))


def test_a_run_killed_before_its_first_checkpoint_starts_at_its_first_step(
    data: Path, tmp_path: Path
) -> None:
    train(data, tmp_path / "whole", small_recipe())
    train(data, tmp_path / "killed", small_recipe())
    for name in ("checkpoints", "latest", "best"):
        shutil.rmtree(tmp_path / "killed" / name)
    train(data, tmp_path / "killed", small_recipe())
    assert_same_runs(tmp_path / "whole", tmp_path / "killed")


def test_looking_does_not_move_the_random_state_of_the_steps(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe("model.residual_dropout=0.2")
    train(data, tmp_path / "whole", recipe)
    real = looking.validate

    def drawing(*arguments: object) -> object:
        torch.rand(1000)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(looking, "validate", drawing)
    train(data, tmp_path / "drawing", recipe)
    assert_same_runs(tmp_path / "whole", tmp_path / "drawing")


def test_other_threads_at_a_resume_are_told(data: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=stop_after(3))
    threads = torch.get_num_threads()
    observer, said = listener()
    torch.set_num_threads(threads + 1)
    try:
        train(data, tmp_path / "run", small_recipe(), observer=observer)
    finally:
        torch.set_num_threads(threads)
    assert [line for line in said if f"threads was {threads} and is {threads + 1}" in line]


def test_a_latest_that_is_missing_or_stale_is_written_again(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(data, run, small_recipe())
    before = weights_of(run)
    shutil.rmtree(run / "latest")
    assert train(data, run).was_finished
    assert are_same(before, weights_of(run))


def test_a_finished_run_says_so_and_stays_as_it_was(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe())
    before, log = weights_of(tmp_path / "run"), metrics_of(tmp_path / "run")
    summary = train(data, tmp_path / "run")
    assert summary.was_finished
    assert are_same(before, weights_of(tmp_path / "run"))
    assert metrics_of(tmp_path / "run") == log


def test_training_seconds_add_up_over_the_calls(data: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=stop_after(3))
    whole = train(data, tmp_path / "run").training_seconds
    again = train(data, tmp_path / "run").training_seconds
    assert again == pytest.approx(whole, abs=0.5)


def test_a_resume_path_that_is_not_there_is_an_error(data: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no run to resume"):
        train(data, tmp_path / "nowhere", must_exist=True)
    assert not (tmp_path / "nowhere").exists()


def test_changed_data_is_refused_by_name_of_the_override(
    data: Path, other_data: Path, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=stop_after(3))
    with pytest.raises(TrainingError, match="--allow-changed-data"):
        train(other_data, tmp_path / "run", small_recipe())
    with pytest.raises(Interrupted):
        train(other_data, tmp_path / "run", allow_changed_data=True, observer=stop_after(5))
    observer, said = listener()
    assert train(other_data, tmp_path / "run", observer=observer).steps == 6
    assert not [line for line in said if "data changed" in line]
    with pytest.raises(TrainingError, match="--allow-changed-data"):
        train(data, tmp_path / "run")


def test_the_best_loss_of_other_data_is_no_mark_to_beat(
    data: Path, other_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[float] = []
    real = Trainer.resume

    def noted(trainer: Trainer) -> None:
        real(trainer)
        found.append(trainer.best.loss)

    monkeypatch.setattr(Trainer, "resume", noted)
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=stop_after(3))
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", observer=stop_after(4))
    train(other_data, tmp_path / "run", allow_changed_data=True)
    assert [math.isfinite(loss) for loss in found] == [True, False]


def test_another_tokenizer_is_refused(data: Path, tmp_path: Path) -> None:
    prepare([data.parent / "texts"], tmp_path / "data", tokenizer="bpe:290")
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=stop_after(3))
    with pytest.raises(TrainingError, match="another tokenizer"):
        train(tmp_path / "data", tmp_path / "run", allow_changed_data=True)


def test_a_swapped_tokenizer_file_in_the_data_is_refused(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    path = tmp_path / "data" / "tokenizer.json"
    path.write_text(path.read_text().replace("<|im_end|>", "<|turn|>"))
    with pytest.raises(DataError, match="not the one"):
        train(tmp_path / "data", tmp_path / "run", small_recipe())


def test_other_settings_for_a_run_that_exists_are_named(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe("optimizer.learning_rate=0.002"))
    with pytest.raises(TrainingError, match=r"optimizer\.learning_rate was 0\.002 and is now 0\.1"):
        train(data, tmp_path / "run", small_recipe("optimizer.learning_rate=0.1"))


def test_an_edited_recipe_is_named(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe("optimizer.learning_rate=0.002"))
    path = tmp_path / "run" / "recipe.toml"
    path.write_text(path.read_text().replace("learning_rate = 0.002", "learning_rate = 0.5"))
    with pytest.raises(TrainingError, match=r"learning_rate was 0\.002 and is now 0\.5"):
        train(data, tmp_path / "run")


def test_a_damaged_manifest_is_named(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe())
    (tmp_path / "run" / "manifest.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"manifest\.json"):
        train(data, tmp_path / "run")

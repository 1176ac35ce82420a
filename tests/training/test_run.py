"""Whole runs: started, stopped, resumed, refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import llamita
from llamita.data.loader import Batch, BlockLoader
from llamita.data.manifest import Manifest
from llamita.errors import ConfigError, DataError, Interrupted, TrainingError
from llamita.model import Transformer
from llamita.training import budget
from llamita.training import run as run_module
from llamita.training.compiling import has_compiler
from llamita.training.metrics import OF_THE_MACHINE, read_metrics
from llamita.training.observer import Observer
from llamita.training.recipe import Length, Recipe
from llamita.training.recipe_file import load_recipe, save_recipe
from llamita.training.run import train
from llamita.training.trainer import Trainer, _one_line
from tests.training.recipes import small_recipe


def _weights(run: Path, name: str = "latest") -> dict[str, torch.Tensor]:
    return load_file(run / name / "model.safetensors")


def _same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def _metrics(run: Path) -> list[dict[str, Any]]:
    lines = read_metrics(run / "metrics.jsonl")
    return [{k: v for k, v in line.items() if k not in OF_THE_MACHINE} for line in lines]


def _stop_after(step: int) -> Observer:
    """An observer that presses Ctrl-C during a step."""

    def on_step(now: int, steps: int, loss: float, rate: float) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGINT)

    return Observer(say=lambda text: None, on_step=on_step)


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
        train(data, tmp_path / "parts", recipe, observer=_stop_after(10))
    summary = train(data, tmp_path / "parts", recipe)
    assert summary.steps == 20
    assert _same(_weights(tmp_path / "whole"), _weights(tmp_path / "parts"))
    assert _same(_weights(tmp_path / "whole", "best"), _weights(tmp_path / "parts", "best"))
    assert _metrics(tmp_path / "whole") == _metrics(tmp_path / "parts")


def test_a_run_leaves_what_the_design_names(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(data, run, small_recipe())
    assert {path.name for path in run.iterdir()} - {".lock"} == {
        "latest", "best", "checkpoints", "metrics.jsonl", "recipe.toml", "manifest.json",
        "tensorboard",
    }  # fmt: skip
    assert (run / "checkpoints" / "step-0000006" / "complete.json").exists()
    assert json.loads((run / "manifest.json").read_text())["kind"] == "run"


def test_the_written_recipe_replays_the_run(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "first", small_recipe())
    train(data, tmp_path / "second", load_recipe(tmp_path / "first" / "recipe.toml"))
    assert _same(_weights(tmp_path / "first"), _weights(tmp_path / "second"))


def test_training_learns(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe("optimizer.learning_rate=0.01", steps=60))
    losses = [m["loss"] for m in _metrics(tmp_path / "run") if "loss" in m]
    assert losses[0] > 5.4
    assert losses[-1] < 0.6 * losses[0]
    validations = [m["validation_loss"] for m in _metrics(tmp_path / "run") if "sample" in m]
    assert validations == sorted(validations, reverse=True)


def test_minutes_become_steps_once_and_do_not_touch_the_weights(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def pretend(trainer: Trainer, minutes: float, spent: float) -> int:
        measured.append(real(trainer, minutes, spent))
        return 8

    real = run_module.steps_that_fit
    monkeypatch.setattr(run_module, "steps_that_fit", pretend)
    dropout = "model.residual_dropout=0.2"
    timed = small_recipe(dropout).model_copy(update={"length": Length(minutes=0.5)})
    with pytest.raises(Interrupted):
        train(data, tmp_path / "timed", timed, observer=_stop_after(3))
    train(data, tmp_path / "timed", timed)
    assert load_recipe(tmp_path / "timed" / "recipe.toml").length == Length(steps=8)
    assert len(measured) == 1
    assert measured[0] > 8
    train(data, tmp_path / "counted", small_recipe(dropout, steps=8))
    assert _same(_weights(tmp_path / "timed"), _weights(tmp_path / "counted"))


def test_tokens_become_steps_rounded_up(data: Path, tmp_path: Path) -> None:
    recipe = small_recipe().model_copy(update={"length": Length(tokens=4 * 32 * 3 + 1)})
    assert train(data, tmp_path / "run", recipe).steps == 4


def test_a_finished_run_says_so_and_stays_as_it_was(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe())
    before = _weights(tmp_path / "run")
    summary = train(data, tmp_path / "run")
    assert summary.was_finished
    assert _same(before, _weights(tmp_path / "run"))


def test_a_resume_path_that_is_not_there_is_an_error(data: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no run to resume"):
        train(data, tmp_path / "nowhere", must_exist=True)
    assert not (tmp_path / "nowhere").exists()


def test_changed_data_is_refused_by_name_of_the_override(
    data: Path, other_data: Path, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=_stop_after(3))
    with pytest.raises(TrainingError, match="--allow-changed-data"):
        train(other_data, tmp_path / "run", small_recipe())
    observer = _stop_after(5)
    with pytest.raises(Interrupted):
        train(other_data, tmp_path / "run", allow_changed_data=True, observer=observer)
    said: list[str] = []
    observer = Observer(say=said.append, on_step=lambda *args: None)
    assert train(other_data, tmp_path / "run", observer=observer).steps == 6
    assert not [line for line in said if "data changed" in line]
    with pytest.raises(TrainingError, match="--allow-changed-data"):
        train(data, tmp_path / "run")


def test_another_tokenizer_is_refused(data: Path, tmp_path: Path) -> None:
    from llamita.data.prepare import prepare

    texts = data.parent / "texts"
    prepare([texts], tmp_path / "data", tokenizer="bpe:290")
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=_stop_after(3))
    with pytest.raises(TrainingError, match="another tokenizer"):
        train(tmp_path / "data", tmp_path / "run", allow_changed_data=True)


def test_a_swapped_tokenizer_file_in_the_data_is_refused(data: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(data, tmp_path / "data")
    path = tmp_path / "data" / "tokenizer.json"
    path.write_text(path.read_text().replace("<|im_end|>", "<|turn|>"))
    with pytest.raises(DataError, match="not the one"):
        train(tmp_path / "data", tmp_path / "run", small_recipe())


def test_other_settings_for_a_run_that_exists_are_named(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe())
    with pytest.raises(TrainingError, match=r"optimizer\.learning_rate was 0\.002 and is now 0\.1"):
        train(data, tmp_path / "run", small_recipe("optimizer.learning_rate=0.1"))


def test_a_latest_that_is_missing_or_stale_is_written_again(data: Path, tmp_path: Path) -> None:
    import shutil

    run = tmp_path / "run"
    train(data, run, small_recipe())
    before = _weights(run)
    shutil.rmtree(run / "latest")
    assert train(data, run).was_finished
    assert _same(before, _weights(run))


def test_an_edited_recipe_is_named(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe())
    path = tmp_path / "run" / "recipe.toml"
    path.write_text(path.read_text().replace("learning_rate = 0.002", "learning_rate = 0.5"))
    with pytest.raises(TrainingError, match=r"learning_rate was 0\.002 and is now 0\.5"):
        train(data, tmp_path / "run")


def test_a_damaged_manifest_is_named(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe())
    (tmp_path / "run" / "manifest.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"manifest\.json"):
        train(data, tmp_path / "run")


def test_a_run_killed_at_birth_can_be_started_again(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / ".recipe.toml.99999999.abcdefgh.tmp").write_text("half")
    (run / "manifest.json").write_text("{}")
    assert train(data, run, small_recipe()).steps == 6


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"50, less than the tokenizer's 300"):
        train(data, tmp_path / "run", small_recipe("model.vocab_size=50"))
    assert not (tmp_path / "run").exists()


def test_training_seconds_add_up_over_the_calls(data: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=_stop_after(3))
    whole = train(data, tmp_path / "run").training_seconds
    again = train(data, tmp_path / "run").training_seconds
    assert again == pytest.approx(whole, abs=0.5)


def test_a_folder_with_other_things_is_no_place_for_a_run(data: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(TrainingError, match=r"precious\.txt"):
        train(data, tmp_path, small_recipe())
    with pytest.raises(TrainingError, match="is a file"):
        train(data, tmp_path / "precious.txt", small_recipe())


def test_a_run_killed_before_its_first_checkpoint_starts_at_its_first_step(
    data: Path, tmp_path: Path
) -> None:
    import shutil

    train(data, tmp_path / "whole", small_recipe())
    train(data, tmp_path / "killed", small_recipe())
    for name in ("checkpoints", "latest", "best"):
        shutil.rmtree(tmp_path / "killed" / name)
    train(data, tmp_path / "killed", small_recipe())
    assert _same(_weights(tmp_path / "whole"), _weights(tmp_path / "killed"))
    assert _metrics(tmp_path / "whole") == _metrics(tmp_path / "killed")


def test_data_too_short_for_one_block_leaves_no_folder_behind(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1,000,000 \+ 1"):
        train(data, tmp_path / "run", small_recipe("batch.context_length=1000000"))
    assert not (tmp_path / "run").exists()


def test_two_processes_cannot_train_in_one_run(data: Path, tmp_path: Path) -> None:
    from filelock import FileLock

    train(data, tmp_path / "run", small_recipe())
    with (
        FileLock(tmp_path / "run" / ".lock"),
        pytest.raises(TrainingError, match="another process"),
    ):
        train(data, tmp_path / "run", small_recipe())


def test_data_without_a_held_out_split_trains_without_validation(
    data: Path, tmp_path: Path
) -> None:
    from llamita.data.prepare import prepare

    texts = data.parent / "texts"
    prepare([texts], tmp_path / "data", tokenizer="bpe:300", val_fraction=0.0)
    assert Manifest.load(tmp_path / "data").val.tokens == 0
    train(tmp_path / "data", tmp_path / "run", small_recipe())
    assert (tmp_path / "run" / "latest").is_dir()
    assert not (tmp_path / "run" / "best").exists()


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe(), observer=_stop_after(3))
    real = Trainer.resume

    def poisoned(trainer: Trainer) -> None:
        real(trainer)
        with torch.no_grad():
            trainer.model.model.norm.weight[0] = float("nan")

    monkeypatch.setattr(Trainer, "resume", poisoned)
    with pytest.raises(TrainingError, match="step 4"):
        train(data, tmp_path / "run", small_recipe())
    monkeypatch.setattr(Trainer, "resume", real)
    assert train(data, tmp_path / "run", small_recipe()).steps == 6


class _NoCompiler:
    """Fails in the forward pass, in the backward pass, or only at the second call."""

    def __init__(self, function: Callable[..., torch.Tensor], where: str) -> None:
        self.function, self.where, self.calls = function, where, 0

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.where == "forward" or (self.where == "later" and self.calls > 1):
            raise RuntimeError("no compiler here\nand much more")
        loss = self.function(*args)
        if self.where == "backward":
            loss.register_hook(self._fail)
        return loss

    def _fail(self, gradient: torch.Tensor) -> None:
        raise RuntimeError("no compiler here\nand much more")


@pytest.mark.parametrize("where", ["forward", "backward", "later"])
def test_without_a_working_compiler_the_run_goes_on_with_one_line(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(torch, "compile", lambda f, **options: _NoCompiler(f, where))
    said: list[str] = []
    observer = Observer(say=said.append, on_step=lambda *args: None)
    train(data, tmp_path / "run", small_recipe("machine.compile=on"), observer=observer)
    lines = [line for line in said if "without compilation" in line]
    assert lines == ["going on without compilation: no compiler here"]
    train(data, tmp_path / "eager", small_recipe())
    assert _same(_weights(tmp_path / "run"), _weights(tmp_path / "eager"))


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(torch.device("cpu")), reason="needs a C++ compiler")
def test_a_compiled_run_resumes_to_the_bit(data: Path, tmp_path: Path) -> None:
    recipe = small_recipe("machine.compile=on", "model.num_hidden_layers=1", steps=4)
    train(data, tmp_path / "whole", recipe)
    with pytest.raises(Interrupted):
        train(data, tmp_path / "parts", recipe, observer=_stop_after(2))
    train(data, tmp_path / "parts", recipe)
    assert _same(_weights(tmp_path / "whole"), _weights(tmp_path / "parts"))


def test_transformers_reads_the_trained_model(data: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")

    train(data, tmp_path / "run", small_recipe())
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "latest")
    ours = llamita.load(tmp_path / "run")
    ids = torch.arange(0, 32)[None] * 7 % 300
    with torch.no_grad():
        gap = (theirs(ids).logits - ours.logits(ids)).abs().max()
    assert gap < 2e-5
    text = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "latest")
    assert ours.tokenizer is not None
    assert text("the llama walks").input_ids == ours.tokenizer.encode("the llama walks", True)


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
    recipe = small_recipe("watch.validations=15", steps=60)
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
    assert _same(_weights(tmp_path / "whole"), _weights(run))


def test_a_run_that_saved_nothing_can_begin_anew_with_other_settings(
    data: Path, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match="step 2"):
        train(data, tmp_path / "run", small_recipe("optimizer.learning_rate=1e38"))
    assert train(data, tmp_path / "run", small_recipe()).steps == 6
    train(data, tmp_path / "fresh", small_recipe())
    assert _metrics(tmp_path / "run") == _metrics(tmp_path / "fresh")


def test_a_batch_that_does_not_fit_the_memory_names_the_way_out(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(trainer: Trainer) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr(Trainer, "take_step", no_memory)
    with pytest.raises(TrainingError, match="not enough memory") as error:
        train(data, tmp_path / "run", small_recipe())
    assert "batch.sequences" in (error.value.hint or "")


def test_steps_get_half_of_the_time_even_where_getting_ready_is_slow(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "_measure_steps", lambda trainer: 0.5)
    monkeypatch.setattr(budget, "_measure_look", lambda trainer: 1000.0)
    said: list[str] = []
    observer = Observer(say=said.append, on_step=lambda *args: None)
    recipe = small_recipe().model_copy(update={"length": Length(minutes=0.1)})
    assert train(data, tmp_path / "run", recipe, observer=observer).steps == 6
    assert [line for line in said if "Training gets 3 s all the same" in line]


def test_samples_cannot_steer_a_terminal() -> None:
    assert _one_line("a\x1b[2Jb\n  c\x07") == "a·[2Jb c·"


def test_steps_without_labels_change_nothing_and_warn_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(data, tmp_path / "run", small_recipe(steps=1))
    real = BlockLoader.next_batch

    def unlabelled(loader: BlockLoader) -> Batch:
        batch = real(loader)
        return Batch(batch.input_ids, torch.full_like(batch.labels, -100))

    monkeypatch.setattr(BlockLoader, "next_batch", unlabelled)
    with pytest.warns(UserWarning, match="without one labelled token") as caught:
        train(data, tmp_path / "masked", small_recipe("optimizer.weight_decay=0.5", steps=3))
    assert len(caught) == 1
    losses = [m["loss"] for m in _metrics(tmp_path / "masked") if "loss" in m]
    assert losses == [0.0, 0.0, 0.0]
    fresh = Transformer(llamita.load(tmp_path / "masked").config).initialize(0)
    saved = _weights(tmp_path / "masked")
    assert all(
        torch.equal(saved[name], tensor)
        for name, tensor in fresh.state_dict().items()
        if name in saved
    )

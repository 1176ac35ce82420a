"""Whole runs: what they leave, what they learn, and what is refused at the start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import llamita
from llamita.data.loader import Batch, BlockLoader
from llamita.data.manifest import Manifest
from llamita.errors import ConfigError, DataError, Interrupted, TrainingError
from llamita.model import Transformer
from llamita.training import budget
from llamita.training import run as run_module
from llamita.training.records.observer import Observer, one_line
from llamita.training.run import train
from llamita.training.settings.recipe import Length
from llamita.training.settings.recipe_file import load_recipe
from llamita.training.trainer import Trainer
from tests.training.recipes import small_recipe
from tests.training.runs import are_same, metrics_of, stop_after, weights_of


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
    assert are_same(weights_of(tmp_path / "first"), weights_of(tmp_path / "second"))


def test_training_learns(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", small_recipe("optimizer.learning_rate=0.01", steps=60))
    losses = [m["loss"] for m in metrics_of(tmp_path / "run") if "loss" in m]
    assert losses[0] > 5.4
    assert losses[-1] < 0.6 * losses[0]
    validations = [m["validation_loss"] for m in metrics_of(tmp_path / "run") if "sample" in m]
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
        train(data, tmp_path / "timed", timed, observer=stop_after(3))
    train(data, tmp_path / "timed", timed)
    assert load_recipe(tmp_path / "timed" / "recipe.toml").length == Length(steps=8)
    assert len(measured) == 1
    assert measured[0] > 8
    train(data, tmp_path / "counted", small_recipe(dropout, steps=8))
    assert are_same(weights_of(tmp_path / "timed"), weights_of(tmp_path / "counted"))


def test_tokens_become_steps_rounded_up(data: Path, tmp_path: Path) -> None:
    recipe = small_recipe().model_copy(update={"length": Length(tokens=4 * 32 * 3 + 1)})
    assert train(data, tmp_path / "run", recipe).steps == 4


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


def test_a_folder_with_other_things_is_no_place_for_a_run(data: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(TrainingError, match=r"precious\.txt"):
        train(data, tmp_path, small_recipe())
    with pytest.raises(TrainingError, match="is a file"):
        train(data, tmp_path / "precious.txt", small_recipe())


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
        train(data, tmp_path / "run", small_recipe(), observer=stop_after(3))
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
        result = self.function(*args)
        first = result[0] if isinstance(result, tuple) else result
        if self.where == "backward" and first.requires_grad:
            first.register_hook(self._fail)
        return result

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
    newest = tmp_path / "run" / "checkpoints" / "step-0000006" / "complete.json"
    saved = json.loads(newest.read_text())["progress"]["arithmetic"]
    assert saved["compilation"] == "off"
    train(data, tmp_path / "eager", small_recipe())
    assert are_same(weights_of(tmp_path / "run"), weights_of(tmp_path / "eager"))


def test_compiling_draws_nothing_and_is_left_out_where_no_step_is_left(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    class Drawing:
        def __init__(self, function: Callable[..., torch.Tensor]) -> None:
            made.append(self)
            self.function = function
            torch.rand(10)

        def __call__(self, *arguments: torch.Tensor) -> torch.Tensor:
            return self.function(*arguments)

    dropout = "model.residual_dropout=0.2"
    train(data, tmp_path / "eager", small_recipe(dropout))
    monkeypatch.setattr(torch, "compile", lambda function, **options: Drawing(function))
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: None)
    recipe = small_recipe(dropout, "machine.compile=on")
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", recipe, observer=stop_after(2))
    made.clear()
    said: list[str] = []
    train(data, tmp_path / "run", observer=Observer(said.append, lambda *args: None))
    assert made
    assert not [line for line in said if "numbers may differ" in line]
    assert are_same(weights_of(tmp_path / "run"), weights_of(tmp_path / "eager"))
    made.clear()
    assert train(data, tmp_path / "run").was_finished
    assert not made


def test_a_resume_that_cannot_compile_any_more_says_that_numbers_may_differ(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: None)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", small_recipe("machine.compile=on"), observer=stop_after(2))
    monkeypatch.setattr(torch, "compile", lambda f, **options: _NoCompiler(f, "forward"))
    said: list[str] = []
    train(data, tmp_path / "run", observer=Observer(said.append, lambda *args: None))
    assert [line for line in said if line.startswith("compilation was on and is off: ")]


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


def test_a_run_that_saved_nothing_can_begin_anew_with_other_settings(
    data: Path, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match="step 2"):
        train(data, tmp_path / "run", small_recipe("optimizer.learning_rate=1e38"))
    assert train(data, tmp_path / "run", small_recipe()).steps == 6
    train(data, tmp_path / "fresh", small_recipe())
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "fresh")


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
    assert one_line("a\x1b[2Jb\n  c\x07") == "a·[2Jb c·"


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
    losses = [m["loss"] for m in metrics_of(tmp_path / "masked") if "loss" in m]
    assert losses == [0.0, 0.0, 0.0]
    fresh = Transformer(llamita.load(tmp_path / "masked").config).initialize(0, zero_outputs=True)
    saved = weights_of(tmp_path / "masked")
    assert all(
        torch.equal(saved[name], tensor)
        for name, tensor in fresh.state_dict().items()
        if name in saved
    )

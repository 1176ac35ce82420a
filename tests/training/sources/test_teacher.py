"""Runs that learn from a teacher: exact, replayable, and refused where it does not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import llamita
from llamita.data.prepare import prepare
from llamita.errors import Interrupted, LlamitaError, TrainingError
from llamita.tokenizer import load_tokenizer
from llamita.training.records.metrics import read_metrics
from llamita.training.records.observer import Observer
from llamita.training.run import train
from llamita.training.settings.recipe import Recipe
from llamita.training.settings.recipe_file import load_recipe
from llamita.training.sources.teacher import load_teacher
from llamita.training.steps.compiling import has_compiler
from tests.training.recipes import small_recipe
from tests.training.runs import are_same, stop_after, weights_of
from tests.training.tokenizers import with_added

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def big(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a model of three layers that has learned a little."""
    run = tmp_path_factory.mktemp("big") / "run"
    shape = ("model.num_hidden_layers=3", "model.hidden_size=96")
    train(data, run, small_recipe(*shape, "optimizer.learning_rate=0.01", steps=12))
    return run


def _recipe(teacher: Path, *assignments: str, steps: int = 6) -> Recipe:
    return small_recipe(f"teacher.model={teacher}", *assignments, steps=steps)


def test_the_teacher_stands_in_the_recipe_with_its_fingerprint_and_is_left_alone(
    data: Path, big: Path, tmp_path: Path
) -> None:
    before = (big / "latest" / "model.safetensors").read_bytes()
    said: list[str] = []
    observer = Observer(say=said.append, on_step=lambda *args: None)
    settings = ("teacher.weight=0.7", "teacher.temperature=3")
    train(data, tmp_path / "run", _recipe(big, *settings), observer=observer)
    teacher = load_recipe(tmp_path / "run" / "recipe.toml").teacher
    assert teacher is not None
    assert (teacher.model, teacher.weight, teacher.temperature) == (str(big), 0.7, 3.0)
    assert (teacher.fingerprint or "").startswith("sha256:")
    assert teacher.precision == "float32"
    assert any("learning from" in line and "weight 0.7, temperature 3" in line for line in said)
    assert (big / "latest" / "model.safetensors").read_bytes() == before
    train(data, tmp_path / "plain", small_recipe())
    assert not are_same(weights_of(tmp_path / "run"), weights_of(tmp_path / "plain"))


@pytest.mark.parametrize("packing", ["stream", "documents"])
def test_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(
    data: Path, big: Path, tmp_path: Path, packing: str
) -> None:
    recipe = _recipe(
        big,
        "model.residual_dropout=0.2",
        "batch.accumulation=2",
        f"batch.packing={packing}",
        steps=8,
    )
    train(data, tmp_path / "whole", recipe)
    with pytest.raises(Interrupted):
        train(data, tmp_path / "parts", recipe, observer=stop_after(4))
    train(data, tmp_path / "parts", recipe)
    assert are_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))


def test_the_settled_recipe_replays_the_run(data: Path, big: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", _recipe(big))
    train(None, tmp_path / "again", load_recipe(tmp_path / "run" / "recipe.toml"))
    assert are_same(weights_of(tmp_path / "run"), weights_of(tmp_path / "again"))


def test_validation_stays_plain_cross_entropy(data: Path, big: Path, tmp_path: Path) -> None:
    still = ("optimizer.learning_rate=1e-30", "optimizer.weight_decay=0")
    train(data, tmp_path / "taught", _recipe(big, *still))
    train(data, tmp_path / "plain", small_recipe(*still))
    losses = [
        [m[key] for m in read_metrics(tmp_path / name / "metrics.jsonl") if key in m]
        for name in ("taught", "plain")
        for key in ("validation_loss", "loss")
    ]
    assert losses[0] == losses[2]
    assert losses[1] != losses[3]


def test_a_student_comes_nearer_to_its_teacher(data: Path, big: Path, tmp_path: Path) -> None:
    faster = ("optimizer.learning_rate=0.01", "watch.validations=1")
    train(data, tmp_path / "run", _recipe(big, *faster, "teacher.weight=1", steps=60))
    losses = [m["loss"] for m in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in m]
    assert losses[-1] < 0.5 * losses[0]


def test_a_changed_or_missing_teacher_is_refused_on_resume(
    data: Path, big: Path, tmp_path: Path
) -> None:
    teacher = tmp_path / "teacher"
    shutil.copytree(big / "latest", teacher)
    recipe = _recipe(teacher)
    with pytest.raises(Interrupted):
        train(data, tmp_path / "run", recipe, observer=stop_after(3))
    weights = load_file(teacher / "model.safetensors")
    whole = {name: tensor.clone() for name, tensor in weights.items()}
    weights["model.norm.weight"][0] += 1
    save_file(weights, teacher / "model.safetensors")
    with pytest.raises(TrainingError, match="not the model any more") as error:
        train(data, tmp_path / "run", recipe)
    assert "teacher.fingerprint=null" in (error.value.hint or "")
    (teacher / "config.json").rename(tmp_path / "config.json")
    with pytest.raises(LlamitaError, match="teacher"):
        train(data, tmp_path / "run", recipe)
    (tmp_path / "config.json").rename(teacher / "config.json")
    save_file(whole, teacher / "model.safetensors")
    assert train(data, tmp_path / "run", recipe).steps == 6


def test_a_teacher_of_other_tokens_is_refused(data: Path, big: Path, tmp_path: Path) -> None:
    prepare([data.parent / "texts"], tmp_path / "data", tokenizer="spm:300")
    with pytest.raises(TrainingError, match=r"300 tokens\) is not the data's \(300\)") as error:
        train(tmp_path / "data", tmp_path / "run", _recipe(big))
    assert "prepare TEXT --tokenizer" in (error.value.hint or "")
    longer = with_added(load_tokenizer(data), tmp_path / "longer", ("<|turn|>", True))
    with pytest.raises(TrainingError, match="301"):
        load_teacher(_recipe(big), longer, CPU)
    assert not (tmp_path / "run").exists()


def test_a_teacher_of_a_shorter_context_is_refused(data: Path, big: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="positions for 32") as error:
        train(data, tmp_path / "run", _recipe(big, "batch.context_length=48"))
    assert "batch.context_length=32" in (error.value.hint or "")


def test_a_teacher_computes_in_its_own_precision_or_the_one_asked_for(
    data: Path, big: Path
) -> None:
    tokenizer = load_tokenizer(data)
    model, settled = load_teacher(_recipe(big, "teacher.precision=bfloat16"), tokenizer, CPU)
    assert (model.lm_head.weight.dtype, settled.precision) == (torch.bfloat16, "bfloat16")
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    model, _ = load_teacher(_recipe(big), tokenizer, CPU)
    ids = torch.arange(20)[None]
    assert torch.equal(model(ids), llamita.load(big).logits(ids))


def test_a_run_can_begin_with_a_model_and_learn_from_another(
    data: Path, big: Path, tmp_path: Path
) -> None:
    train(data, tmp_path / "base", small_recipe())
    both = small_recipe(f"init={tmp_path / 'base'}", f"teacher.model={big}")
    train(data, tmp_path / "run", both)
    recipe = load_recipe(tmp_path / "run" / "recipe.toml")
    assert recipe.init == str(tmp_path / "base")
    assert recipe.teacher is not None


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(CPU), reason="needs a C++ compiler")
def test_a_compiled_run_resumes_to_the_bit_too(data: Path, big: Path, tmp_path: Path) -> None:
    said: list[str] = []
    observer = Observer(say=said.append, on_step=lambda *args: None)
    recipe = _recipe(big, "machine.compile=on", "model.residual_dropout=0.1")
    train(data, tmp_path / "whole", recipe, observer=observer)
    with pytest.raises(Interrupted):
        train(data, tmp_path / "parts", recipe, observer=stop_after(3))
    train(data, tmp_path / "parts", recipe)
    assert are_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))
    assert not [line for line in said if "without compilation" in line]

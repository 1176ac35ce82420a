"""Starting a run, or going on with it: what `llamita train DATA -o RUN` does.

The first call decides everything that is open (device, precision, compilation, step count), writes
it down, and trains. Later calls read it back, make sure that nothing changed, and go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock, Timeout

import llamita
from llamita.config import ModelConfig
from llamita.data.manifest import Manifest
from llamita.errors import DataError, TrainingError
from llamita.files import remove_leftovers
from llamita.formats.detect import RECIPE
from llamita.model import Transformer
from llamita.model.placement import choose_device
from llamita.tokenizer import Tokenizer, load_tokenizer
from llamita.training.budget import steps_that_fit
from llamita.training.checkpoints import has_checkpoints
from llamita.training.compiling import has_compiler
from llamita.training.manifest import RUN_MANIFEST_NAME, RunManifest
from llamita.training.precision import choose_precision
from llamita.training.recipe import Recipe
from llamita.training.recipe_file import load_recipe, save_recipe
from llamita.training.trainer import SILENT, Observer, Trainer

LOCK_NAME = ".lock"

# Compiling takes about half a minute on two cores; a shorter run does not win it back.
_COMPILE_FROM_SECONDS = 120.0
_USUAL_FLOPS = {"cpu": 2e11, "cuda": 5e13}


@dataclass(frozen=True)
class Summary:
    """Where a run stands. `training_seconds` are those of all its calls together."""

    run: Path
    steps: int
    parameters: int
    training_seconds: float
    was_finished: bool


def train(
    data: Path,
    run: Path,
    requested: Recipe | None = None,
    *,
    must_exist: bool = False,
    allow_changed_data: bool = False,
    observer: Observer = SILENT,
) -> Summary:
    """Start the run in `run`, or go on with it after its newest checkpoint.

    Args:
        data: a DATA directory of `llamita prepare`.
        requested: the settings asked for; None means the defaults, or, for a run that exists, its
            own.
        must_exist: refuse to start anew.
        allow_changed_data: go on although the tokens are others than at the start.

    Raises:
        TrainingError: the run cannot start or go on; nothing was changed.
        Interrupted: Ctrl-C, after saving.
    """
    started = time.perf_counter()
    manifest = Manifest.load(data)
    tokenizer = load_tokenizer(data)
    if tokenizer.fingerprint != manifest.tokenizer.fingerprint:
        raise DataError(
            f"the tokenizer in {data} is not the one its tokens were made with.",
            hint="Put the right tokenizer files back, or prepare the data again.",
        )
    if must_exist and not (run / RECIPE).exists():
        raise TrainingError(
            f"there is no run to resume in {run}.",
            hint="Check the path, or leave --resume out to start a new one.",
        )
    exists = (run / RECIPE).exists()
    with _locked(run), _memory_errors():
        # A run that saved nothing yet has nothing to go on from: other settings may begin it anew.
        if exists and (requested is None or has_checkpoints(run / "checkpoints")):
            recipe = load_recipe(run / RECIPE)
            recorded = RunManifest.load(run)
            recorded.check_settings(run, recipe, requested)
            recorded.check_data(run, manifest, allow_changed_data)
            choose_device(recipe.machine.device)
            config = _model_config(recipe, tokenizer)
            trainer = _build(run, data, manifest, tokenizer, recipe, config, observer)
            recorded.with_data(data, manifest).save(run)
            trainer.resume()
        else:
            if not exists:
                _check_free(run)
            trainer = _begin(run, data, manifest, tokenizer, requested or Recipe(), observer)
            trainer.seconds = time.perf_counter() - started
        was_finished = trainer.step >= trainer.steps
        trainer.train()
    parameters = trainer.model.config.count_parameters()
    return Summary(run, trainer.steps, parameters, trainer.seconds, was_finished)


def _begin(
    run: Path,
    data: Path,
    manifest: Manifest,
    tokenizer: Tokenizer,
    requested: Recipe,
    observer: Observer,
) -> Trainer:
    """Decide what is open and write down what the run is; the recipe last, as it makes it one."""
    started = time.perf_counter()
    config = _model_config(requested, tokenizer)
    recipe = _decide_machine(requested, config, observer)
    trainer = _build(run, data, manifest, tokenizer, recipe, config, observer)
    trainer.settle_steps(_settle_length(trainer, started))
    RunManifest(
        llamita_version=llamita.__version__,
        data=str(data),
        data_fingerprint=manifest.fingerprint,
        tokenizer_fingerprint=manifest.tokenizer.fingerprint,
        parameters=config.count_parameters(),
        requested=requested.model_dump(mode="json"),
        settled=trainer.recipe.model_dump(mode="json"),
    ).save(run)
    save_recipe(trainer.recipe, run / RECIPE)
    return trainer


def _build(
    run: Path,
    data: Path,
    manifest: Manifest,
    tokenizer: Tokenizer,
    recipe: Recipe,
    config: ModelConfig,
    observer: Observer,
) -> Trainer:
    model = Transformer(config).initialize(recipe.seed).to(recipe.machine.device)
    observer.say(
        f"{config.count_parameters():,} parameters: {config.num_hidden_layers} layers, width "
        f"{config.hidden_size}, vocabulary {config.vocab_size}, context "
        f"{recipe.batch.context_length}; {manifest.train.tokens:,} training tokens"
    )
    return Trainer(run, data, recipe, model, tokenizer, observer)


@contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Keep other processes out of a run, and remove what a killed one left half written.

    A folder made here goes again when nothing came of it.
    """
    if run.exists() and not run.is_dir():
        raise TrainingError(f"{run} is a file; a run needs a folder.")
    is_new = not run.exists()
    run.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(run / LOCK_NAME, timeout=0):
            for folder in (run, run / "checkpoints"):
                remove_leftovers(folder)
            yield
    except Timeout:
        raise TrainingError(
            f"another process is training in {run}.", hint="Wait for it, or choose another -o."
        ) from None
    finally:
        if is_new and {path.name for path in run.iterdir()} <= {LOCK_NAME}:
            (run / LOCK_NAME).unlink(missing_ok=True)
            run.rmdir()


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Say what to do where a batch or a model does not fit the memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        out_of_memory = isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if not out_of_memory and "allocate memory" not in str(error):
            raise
        raise TrainingError(
            "there is not enough memory for this model and batch.",
            hint="Lower batch.sequences (and raise batch.accumulation to make up for it), "
            "batch.context_length, or the model's size.",
        ) from error


def _check_free(run: Path) -> None:
    """A new run may lie in a folder that is empty, or left by one killed at birth."""
    ours = (RUN_MANIFEST_NAME, LOCK_NAME)
    others = sorted(path.name for path in run.iterdir() if path.name not in ours)
    if others:
        raise TrainingError(
            f"{run} is no training run and not empty (it has {others[0]}).",
            hint="Choose another folder with -o.",
        )


def _model_config(recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    return recipe.model_shape(
        tokenizer.vocab_size,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _decide_machine(recipe: Recipe, config: ModelConfig, observer: Observer) -> Recipe:
    wanted = recipe.machine
    device = choose_device(None if wanted.device == "auto" else wanted.device)
    precision, reason = choose_precision(wanted.precision, device)
    compiling = wanted.compile
    if compiling == "auto":
        long_enough = _expected_seconds(recipe, config, device.type) >= _COMPILE_FROM_SECONDS
        compiling = "on" if long_enough and has_compiler(device) else "off"
    observer.say(f"computing on {device.type} in {precision} ({reason}), compilation {compiling}")
    settled = {"device": device.type, "precision": precision, "compile": compiling}
    return recipe.model_copy(update={"machine": wanted.model_copy(update=settled)})


def _expected_seconds(recipe: Recipe, config: ModelConfig, device: str) -> float:
    """A rough guess before anything was measured: 6 operations a parameter and token."""
    if recipe.length.minutes is not None:
        return 60 * recipe.length.minutes
    tokens = recipe.length.tokens or (recipe.length.steps or 0) * recipe.tokens_per_step
    return 6 * config.count_parameters() * tokens / _USUAL_FLOPS.get(device, 1e12)


def _settle_length(trainer: Trainer, started: float) -> int:
    length = trainer.recipe.length
    if length.steps is not None:
        return length.steps
    if length.tokens is not None:
        return math.ceil(length.tokens / trainer.recipe.tokens_per_step)
    assert length.minutes is not None
    trainer.observer.say(f"measuring how many steps fit {length.minutes:g} minutes")
    steps = steps_that_fit(trainer, length.minutes, time.perf_counter() - started)
    trainer.observer.say(f"{steps} steps of {trainer.recipe.tokens_per_step:,} tokens")
    return steps

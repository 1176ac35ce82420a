"""Starting a run, or going on with it: what `llamita train DATA -o RUN` does.

The first call decides everything that is open (device, precision, compilation, step count), writes
it down, and trains. Later calls read it back, make sure that nothing changed, and go on.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock, Timeout

import llamita
from llamita.config import ModelConfig
from llamita.data.training_data import TrainingData
from llamita.errors import TrainingError
from llamita.files import remove_leftovers
from llamita.formats.detect import RECIPE
from llamita.model import Transformer
from llamita.model.placement import choose_device
from llamita.tokenizer import Tokenizer
from llamita.training.budget import steps_that_fit
from llamita.training.checkpoints import has_checkpoints
from llamita.training.compiling import choose_compilation
from llamita.training.determinism import fix_workspace
from llamita.training.initial import InitialModel, check_unchanged
from llamita.training.inputs import (
    check_fingerprints,
    open_sources,
    pack_chats,
    recorded_sources,
    with_sources,
)
from llamita.training.manifest import RUN_MANIFEST_NAME, RunManifest, sources_of
from llamita.training.observer import SILENT, Observer
from llamita.training.precision import choose_precision
from llamita.training.recipe import Recipe, Source
from llamita.training.recipe_file import load_recipe, save_recipe
from llamita.training.teacher import load_teacher
from llamita.training.trainer import Trainer

LOCK_NAME = ".lock"

_USUAL_FLOPS = {"cpu": 2e11, "cuda": 5e13}


@dataclass(frozen=True)
class Summary:
    """Where a run stands. `training_seconds` are those of all its calls together."""

    run: Path
    data: tuple[Path, ...]
    steps: int
    parameters: int
    training_seconds: float
    was_finished: bool


def train(
    data: Path | Sequence[Source] | None,
    run: Path,
    requested: Recipe | None = None,
    *,
    must_exist: bool = False,
    allow_changed_data: bool = False,
    observer: Observer = SILENT,
) -> Summary:
    """Start the run in `run`, or go on with it after its newest checkpoint.

    Args:
        data: a DATA folder (of `llamita prepare`, or token bins), or several with weights; None
            takes those of `requested`, or, for a run that exists, its own.
        requested: the settings asked for; None means the defaults, or, for a run that exists, its
            own.
        must_exist: refuse to start anew.
        allow_changed_data: go on although the tokens are others than at the start, or begin
            although they are others than the recipe's.

    Raises:
        TrainingError: the run cannot start or go on; nothing was changed.
        Interrupted: Ctrl-C, after saving.
    """
    started = time.perf_counter()
    if must_exist and not (run / RECIPE).exists():
        raise TrainingError(
            f"there is no run to resume in {run}.",
            hint="Check the path, or leave --resume out to start a new one.",
        )
    exists = (run / RECIPE).exists()
    # A run that saved nothing yet has nothing to go on from: other settings may begin it anew.
    goes_on = exists and (requested is None or has_checkpoints(run / "checkpoints"))
    recorded = RunManifest.load(run) if goes_on else None
    sources = recorded_sources(data, requested, run if exists else None)
    opened = open_sources(sources, observer.say)
    with _locked(run), _memory_errors():
        if recorded is not None:
            recipe = load_recipe(run / RECIPE)
            recorded.check_settings(run, recipe, requested)
            recorded.check_data(run, opened, allow_changed_data)
            check_unchanged(recipe, requested)
            choose_device(recipe.machine.device)
            # From the first checkpoint on, the model that was begun with is not needed any more.
            begins = recipe.init is not None and not has_checkpoints(run / "checkpoints")
            start = InitialModel.open(recipe, opened.tokenizer) if begins else None
            config = recorded.shape or _model_config(recipe, opened.tokenizer)
            recipe = with_sources(recipe, opened)
            trainer = _build(run, opened, recipe, config, observer, start)
            recorded.with_data(opened).save(run)
            save_recipe(trainer.recipe, run / RECIPE)
            trainer.resume()
        else:
            if not exists:
                _check_free(run)
            check_fingerprints(sources, opened, allow_changed_data, observer.say)
            trainer = _begin(run, opened, requested or Recipe(), observer)
            trainer.seconds = time.perf_counter() - started
        was_finished = trainer.step >= trainer.steps
        trainer.train()
    parameters = trainer.model.config.count_parameters()
    paths = tuple(folder.path for folder in opened.folders)
    return Summary(run, paths, trainer.steps, parameters, trainer.seconds, was_finished)


def _begin(
    run: Path,
    data: TrainingData,
    requested: Recipe,
    observer: Observer,
) -> Trainer:
    """Decide what is open and write down what the run is; the recipe last, as it makes it one."""
    started = time.perf_counter()
    recipe, start = pack_chats(requested, data, observer.say), None
    if requested.init is None:
        config = _model_config(requested, data.tokenizer)
    else:
        start = InitialModel.open(requested, data.tokenizer)
        config = start.config
        recipe = recipe.model_copy(update=start.settled)
    recipe = with_sources(_decide_machine(recipe, config, observer), data)
    trainer = _build(run, data, recipe, config, observer, start)
    trainer.settle_steps(_settle_length(trainer, started))
    RunManifest(
        llamita_version=llamita.__version__,
        data=data.described,
        data_fingerprint=data.fingerprint,
        sources=sources_of(data),
        tokenizer_fingerprint=data.tokenizer.fingerprint,
        parameters=config.count_parameters(),
        model=dataclasses.asdict(config),
        requested=requested.model_dump(mode="json"),
        settled=trainer.recipe.model_dump(mode="json"),
    ).save(run)
    save_recipe(trainer.recipe, run / RECIPE)
    return trainer


def _build(
    run: Path,
    data: TrainingData,
    recipe: Recipe,
    config: ModelConfig,
    observer: Observer,
    start: InitialModel | None = None,
) -> Trainer:
    if start is None:
        model = Transformer(config).initialize(recipe.seed, zero_outputs=True)
    else:
        observer.say(f"beginning with {recipe.init}; {start.rows.describe()}")
        model = start.build()
    model.to(recipe.machine.device)
    teacher = None
    if recipe.teacher is not None:
        device = torch.device(recipe.machine.device)
        teacher, settled = load_teacher(recipe, data.tokenizer, device)
        recipe = recipe.model_copy(update={"teacher": settled})
        observer.say(
            f"learning from {settled.model}, {teacher.config.count_parameters():,} parameters in "
            f"{settled.precision}: weight {settled.weight:g}, temperature {settled.temperature:g}"
        )
    observer.say(
        f"{config.count_parameters():,} parameters: {config.num_hidden_layers} layers, width "
        f"{config.hidden_size}, vocabulary {config.vocab_size}, context "
        f"{recipe.batch.context_length}; {data.train_tokens:,} training tokens"
    )
    trainer = Trainer(run, data, recipe, model, data.tokenizer, observer, teacher)
    for line in trainer.notes:
        observer.say(line)
    return trainer


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
    if wanted.deterministic:
        fix_workspace()  # before the products that are timed here
    device = choose_device(None if wanted.device == "auto" else wanted.device)
    precision, reason = choose_precision(wanted.precision, device)
    seconds = _expected_seconds(recipe, config, device.type)
    compiling, why = choose_compilation(wanted.compile, device, seconds)
    observer.say(
        f"computing on {device.type} in {precision} ({reason}), compilation {compiling} ({why})"
    )
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

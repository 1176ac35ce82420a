"""Starting a run, or going on with it: what `llamita train DATA -o RUN` does.

The first call decides everything that is open (device, precision, compilation, step count), writes
it down, and trains. Later calls read it back, make sure that nothing changed, and go on.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import llamita
from llamita.config import ModelConfig
from llamita.data.training_data import TrainingData
from llamita.errors import TrainingError
from llamita.formats.detect import RECIPE
from llamita.model.placement import choose_device
from llamita.tokenizer import Tokenizer
from llamita.training.budget import steps_that_fit
from llamita.training.checkpointing.checkpoints import has_checkpoints
from llamita.training.deciding import decide_machine
from llamita.training.machine.allocator import keep_freed_memory
from llamita.training.memory.check import check_disk, check_fits
from llamita.training.ranks.failures import memory_errors
from llamita.training.ranks.shared_folder import check_shared
from llamita.training.ranks.world import World
from llamita.training.records.manifest import RunManifest, sources_of
from llamita.training.records.observer import SILENT, Observer
from llamita.training.run_folder import check_free, held
from llamita.training.settings.recipe import Recipe, Source
from llamita.training.settings.recipe_file import load_recipe, save_recipe
from llamita.training.settings.settling import with_changeable
from llamita.training.sources.initial import InitialModel, check_unchanged, with_turn_ends
from llamita.training.sources.inputs import (
    check_fingerprints,
    check_same,
    open_sources,
    pack_chats,
    recorded_sources,
    with_sources,
)
from llamita.training.sources.new_model import new_model, new_sharded_model
from llamita.training.sources.teacher import load_same_teacher, teacher_shape
from llamita.training.steps.parallel import decide_parallel, training_loader
from llamita.training.trainer import Trainer


@dataclass(frozen=True)
class Summary:
    """Where a run stands after `steps`. `training_seconds` are those of all its calls together;
    `best_step` and `best_loss` are None where nothing was validated; `is_told` has another rank
    tell the user."""

    run: Path
    data: tuple[Path, ...]
    steps: int
    parameters: int
    training_seconds: float
    was_finished: bool
    is_told: bool = False
    stopped_early: bool = False
    best_step: int | None = None
    best_loss: float | None = None


def train(
    data: Path | Sequence[Source] | None,
    run: Path,
    requested: Recipe | None = None,
    *,
    must_exist: bool = False,
    allow_changed_data: bool = False,
    is_checked: bool = False,
    beside: Sequence[str] = (),
    observer: Observer = SILENT,
) -> Summary:
    """Start the run in `run`, or go on with it after its newest checkpoint.

    Args:
        data: a DATA folder (of `llamita prepare`, or token bins), or several with weights; None
            takes those of `requested`, or, for a run that exists, its own.
        requested: the settings asked for; None: the defaults, or those of a run that exists.
        must_exist: refuse to start anew.
        allow_changed_data: go on although the tokens are others than at the start, or begin
            although they are others than the recipe's.
        is_checked: the data has the hashes it should have; the caller has just made sure.
        beside: names of what the caller has put into the folder of a new run.

    Raises:
        TrainingError: the run cannot start or go on; nothing was changed.
        Interrupted: Ctrl-C, after saving.
    """
    started = time.perf_counter()
    keep_freed_memory()
    with World.join() as world:
        observer = observer if world.is_first else SILENT
        # The first rank's look counts: what it writes soon, others might see already.
        exists = world.from_first((run / RECIPE).exists())
        if must_exist and not exists:
            raise TrainingError(
                f"there is no run to resume in {run}.",
                hint="Check the path, or leave --resume out to start a new one.",
            )
        if exists:
            check_shared(run, world)  # what is read of it next is that of all
        # A run that saved nothing yet has nothing to go on from: others may begin it anew.
        is_saved = world.from_first(has_checkpoints(run / "checkpoints"))
        with world.agreed():
            recorded = None
            if exists and (requested is None or is_saved):
                recorded = RunManifest.load(run)
            sources = recorded_sources(data, requested, run if exists else None)
            check = world.local_rank == 0 and not is_checked
            opened = open_sources(sources, observer.say, check=check)
        check_same(f"DATA in {opened.described}", opened.fingerprint, world)
        with held(run, world), memory_errors():
            if recorded is not None:
                with world.agreed():
                    recorded.check_data(run, opened, allow_changed_data)
                trainer = _go_on(run, opened, recorded, requested, observer, world)
            else:
                with world.agreed():
                    if not exists and world.is_first:
                        check_free(run, beside)
                    check_fingerprints(sources, opened, allow_changed_data, observer.say)
                trainer = _begin(run, opened, requested or Recipe(), observer, world)
                trainer.seconds = time.perf_counter() - started
            was_finished = trainer.is_finished
            trainer.train()
    best = trainer.best
    return Summary(
        run,
        tuple(folder.path for folder in opened.folders),
        trainer.step,
        trainer.model.config.count_parameters(),
        trainer.seconds,
        was_finished,
        is_told=not world.is_first,
        stopped_early=trainer.step < trainer.steps,
        best_step=best.step,
        best_loss=best.loss if best.step is not None else None,
    )


def _go_on(
    run: Path,
    data: TrainingData,
    recorded: RunManifest,
    requested: Recipe | None,
    observer: Observer,
    world: World,
) -> Trainer:
    """Read back what was decided, make sure that it still holds, and restore what was saved."""
    # From the first checkpoint on, the model that was begun with is not needed any more.
    is_saved = world.from_first(has_checkpoints(run / "checkpoints"))
    with world.agreed():
        recipe = load_recipe(run / RECIPE)
        recorded.check_settings(run, recipe, requested)
        check_unchanged(recipe, requested)
        choose_device(recipe.machine.device)
        begins = recipe.init is not None and not is_saved
        start = InitialModel.open(recipe, data.tokenizer) if begins else None
        config = recorded.shape or _model_config(recipe, data.tokenizer)
        recipe = with_changeable(with_sources(recipe, data), requested)
    trainer = _build(run, data, recipe, config, observer, start, world)
    with world.agreed():
        if world.is_first:
            recorded.with_data(data).save(run)
            save_recipe(trainer.recipe, run / RECIPE)
    trainer.resume()
    return trainer


def _begin(
    run: Path, data: TrainingData, requested: Recipe, observer: Observer, world: World
) -> Trainer:
    """Decide what is open and write down what the run is; the recipe last, as it makes it one."""
    started = time.perf_counter()
    with world.agreed():
        recipe, start = pack_chats(requested, data, observer.say), None
        if requested.init is None:
            config = _model_config(requested, data.tokenizer)
        else:
            start = InitialModel.open(requested, data.tokenizer)
            config = start.config
            recipe = recipe.model_copy(update=start.settled)
        if world.is_first:
            recipe = decide_machine(recipe, config, observer)
    recipe = with_sources(world.from_first(recipe), data)
    trainer = _build(run, data, recipe, config, observer, start, world)
    trainer.settle_steps(_settle_length(trainer, started))
    with world.agreed():
        if recipe.length.minutes is not None and world.is_first:
            check_disk(run, trainer.recipe, config)
    manifest = RunManifest(
        llamita_version=llamita.__version__,
        data=data.described,
        data_fingerprint=data.fingerprint,
        sources=sources_of(data),
        tokenizer_fingerprint=data.tokenizer.fingerprint,
        parameters=config.count_parameters(),
        model=dataclasses.asdict(config),
        requested=requested.model_dump(mode="json"),
        settled=trainer.recipe.model_dump(mode="json"),
    )
    with world.agreed():
        if world.is_first:
            manifest.save(run)
            save_recipe(trainer.recipe, run / RECIPE)
    return trainer


def _build(
    run: Path,
    data: TrainingData,
    recipe: Recipe,
    config: ModelConfig,
    observer: Observer,
    start: InitialModel | None,
    world: World,
) -> Trainer:
    device = recipe.machine.device
    with world.agreed():
        world.check_device(device)
        learned_from = teacher_shape(recipe)
    parallel = decide_parallel(recipe, config, observer, world, learned_from)
    with world.agreed():
        # Before memory is asked for: what the data is too short for needs none.
        loader = training_loader(data, recipe, world)
        check_fits(
            run,
            recipe,
            config,
            ranks=world.size,
            local_ranks=world.local_size,
            parallel=parallel,
            teacher=learned_from,
            train_tokens=data.train_tokens,
            has_begun=(run / RECIPE).exists(),
            looks_at_disk=world.is_first,
            report=observer.say,
        )
    if start is not None:
        check_same(f"model to begin with in {recipe.init}", start.fingerprint, world)
        observer.say(f"beginning with {recipe.init}; {start.rows.describe()}")
    if parallel == "fsdp":
        precision = recipe.machine.precision
        model = new_sharded_model(config, recipe.seed, start, device, world, precision)
    else:
        with world.agreed():
            model = new_model(config, recipe.seed, start, recipe.lora)
            model.to(device)
    teacher = None
    if recipe.teacher is not None:
        teacher, settled = load_same_teacher(recipe, data.tokenizer, torch.device(device), world)
        recipe = recipe.model_copy(update={"teacher": settled})
        observer.say(
            f"learning from {settled.model}, {teacher.config.count_parameters():,} parameters in "
            f"{settled.precision}: weight {settled.weight:g}, temperature {settled.temperature:g}"
        )
    adapters = f" + {recipe.lora.values(config):,} of adapters" if recipe.lora else ""
    observer.say(
        f"{config.count_parameters():,} parameters{adapters}: {config.num_hidden_layers} layers, "
        f"width {config.hidden_size}, vocabulary {config.vocab_size}, context "
        f"{recipe.batch.context_length}; {data.train_tokens:,} training tokens"
    )
    trainer = Trainer(
        run, data, recipe, model, data.tokenizer, observer, teacher, world, loader=loader
    )
    for line in trainer.notes:
        observer.say(line)
    return trainer


def _model_config(recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    return recipe.model_shape(
        tokenizer.vocab_size,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=with_turn_ends(tokenizer.eos_token_id, tokenizer),
        pad_token_id=tokenizer.pad_token_id,
    )


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

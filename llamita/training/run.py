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
from typing import Any

from filelock import FileLock, Timeout

import llamita
from llamita.config import ModelConfig
from llamita.data.manifest import Manifest
from llamita.errors import DataError, TrainingError
from llamita.files import read_json, remove_leftovers, write_json
from llamita.model import Transformer
from llamita.model.placement import choose_device
from llamita.tokenizer import Tokenizer, load_tokenizer
from llamita.training.budget import steps_that_fit
from llamita.training.compiling import has_compiler
from llamita.training.precision import choose_precision
from llamita.training.recipe import Machine, Recipe, load_recipe
from llamita.training.trainer import SILENT, Observer, Trainer

RECIPE_NAME = "recipe.toml"
MANIFEST_NAME = "manifest.json"

LOCK_NAME = ".lock"

# Compiling takes about half a minute on two cores; a shorter run does not win it back.
_COMPILE_FROM_SECONDS = 120.0
_USUAL_FLOPS = {"cpu": 2e11, "cuda": 5e13}


@dataclass(frozen=True)
class Summary:
    """What a call of `train` did. `seconds` are its own, not those of earlier calls."""

    run: Path
    steps: int
    parameters: int
    seconds: float
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
    data_changed = False
    is_new = not (run / RECIPE_NAME).exists()
    if is_new:
        if must_exist:
            raise TrainingError(
                f"there is no run to resume in {run}.",
                hint="Check the path, or leave --resume out to start a new one.",
            )
        _check_free(run)
        asked = requested or Recipe()
        config = _model_config(asked, tokenizer)
        recipe = _decide_machine(asked, config, observer)
    else:
        data_changed = _check_same(run, requested, manifest, allow_changed_data)
        recipe = load_recipe(run / RECIPE_NAME)
        config = _model_config(recipe, tokenizer)
    model = Transformer(config).initialize(recipe.seed).to(recipe.machine.device)
    observer.say(_describe(recipe, config, manifest))
    trainer = Trainer(run, data, recipe, model, tokenizer, observer)
    with _locked(run):
        if is_new:
            trainer.settle_steps(_settle_length(trainer, started))
            _begin(run, data, manifest, asked, trainer)
        else:
            trainer.resume(data_changed=data_changed)
        was_finished = trainer.step >= trainer.steps
        trainer.train()
    seconds = time.perf_counter() - started
    return Summary(run, trainer.steps, config.count_parameters(), seconds, was_finished)


@contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Keep other processes out of a run, and remove what a killed one left half written."""
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
    machine = Machine(device=device.type, precision=precision, compile=compiling)
    return recipe.model_copy(update={"machine": machine})


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


def _begin(run: Path, data: Path, manifest: Manifest, requested: Recipe, trainer: Trainer) -> None:
    """Write what the run is; the recipe last, since a folder with one is a run."""
    write_json(
        run / MANIFEST_NAME,
        {
            "kind": "run",
            "llamita_version": llamita.__version__,
            "data": str(data),
            "data_fingerprint": manifest.fingerprint,
            "tokenizer_fingerprint": manifest.tokenizer.fingerprint,
            "parameters": trainer.model.config.count_parameters(),
            "requested": requested.model_dump(mode="json"),
        },
    )
    trainer.recipe.save(run / RECIPE_NAME)


def _check_free(run: Path) -> None:
    """A new run may lie in a folder that is empty or missing, or left by one killed at birth."""
    if not run.exists():
        return
    if not run.is_dir():
        raise TrainingError(f"{run} is a file; a run needs a folder.")
    ours = (MANIFEST_NAME, LOCK_NAME)
    others = [path.name for path in run.iterdir() if path.name not in ours]
    if others:
        raise TrainingError(
            f"{run} is no training run and not empty (it has {sorted(others)[0]}).",
            hint="Choose another folder with -o.",
        )


def _check_same(
    run: Path, requested: Recipe | None, manifest: Manifest, allow_changed_data: bool
) -> bool:
    """Refuse to go on with something else; whether the data changed, where that is allowed."""
    recorded: dict[str, Any] = read_json(run / MANIFEST_NAME, TrainingError)
    changed_tokenizer = recorded["tokenizer_fingerprint"] != manifest.tokenizer.fingerprint
    if changed_tokenizer:
        raise TrainingError(
            f"{run} was begun with another tokenizer; its embeddings mean other tokens.",
            hint="Give the data it was begun with, or start a new run with another -o.",
        )
    data_changed = bool(recorded["data_fingerprint"] != manifest.fingerprint)
    if data_changed and not allow_changed_data:
        raise TrainingError(
            f"{run} was begun with other data ({recorded['data']}).",
            hint="Give that data, or go on with this one anyway: --allow-changed-data",
        )
    asked = recorded["requested"] if requested is None else requested.model_dump(mode="json")
    differences = _differences(recorded["requested"], asked)
    if differences:
        raise TrainingError(
            f"{run} was begun with other settings: {'; '.join(differences)}.",
            hint="Leave the settings out to go on as it was begun, or start a new run "
            "with another -o.",
        )
    return data_changed


def _differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name in sorted(set(before) | set(now)):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{prefix}{name}.")
        elif old != new:
            found.append(f"{prefix}{name} was {old!r} and is now {new!r}")
    return found


def _describe(recipe: Recipe, config: ModelConfig, manifest: Manifest) -> str:
    return (
        f"{config.count_parameters():,} parameters: {config.num_hidden_layers} layers, width "
        f"{config.hidden_size}, vocabulary {config.vocab_size}, context "
        f"{recipe.batch.context_length}; {manifest.train.tokens:,} training tokens"
    )

"""What ranks do in the tests of sharded models and their checkpoints."""

from __future__ import annotations

import os
import resource
import signal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer as TorchOptimizer

from llamita.config import ModelConfig, preset
from llamita.errors import LlamitaError
from llamita.model import Transformer
from llamita.tokenizer import load_tokenizer
from llamita.training.checkpointing import checkpoints
from llamita.training.checkpointing.checkpoints import (
    load_newest_checkpoint,
    take_snapshot,
    write_checkpoint,
)
from llamita.training.checkpointing.saving import write_save
from llamita.training.ranks import shared_folder
from llamita.training.ranks.shared_folder import check_shared
from llamita.training.ranks.world import World
from llamita.training.settings.recipe import Checkpoints, Optimizer, Recipe
from llamita.training.sources import teacher
from llamita.training.sources.initial import InitialModel
from llamita.training.sources.new_model import new_model, new_sharded_model
from llamita.training.sources.teacher import load_same_teacher
from llamita.training.steps.optimizers import build_optimizers

NAMES = ["latest"]
KEPT = Checkpoints()
State = tuple[Transformer, list[TorchOptimizer]]


def shape(**others: Any) -> ModelConfig:
    """Rows that four ranks cannot share evenly, and norms of head_dim that leave one of them none.

    A vocabulary of 61 rows makes parts of 16, 16, 16 and 13; norms of 6 numbers 2, 2, 2 and 0.
    """
    return preset("tiny", 61, **{"head_dim": 6, "use_qk_norm": True, **others})


def begin(world: World, seed: int = 0) -> State:
    """A model, in shards where there are several ranks, with Muon and AdamW."""
    config = shape(residual_dropout=0.1)
    if world.size == 1:
        model = new_model(config, seed, None)
    else:
        model = new_sharded_model(config, seed, None, "cpu", world)
    model.eval()  # dropout is spoken of, and would make the steps of ranks differ
    return model, build_optimizers(model, Optimizer(name="muon"), "float32")


def step(state: State) -> None:
    """One step, with the same rows on every rank."""
    model, optimizers = state
    model(torch.arange(12)[None]).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def whole_state(state: State) -> dict[str, Tensor]:
    """Weights and optimizer state in one piece, by name; all ranks must ask."""
    model, optimizers = state
    found: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        found[name] = _whole(parameter)
        for optimizer in optimizers:
            for key, value in optimizer.state.get(parameter, {}).items():
                found[f"{name} {key}"] = _whole(value)
    return found


def _whole(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).clone()


class Seen(NamedTuple):
    """A state, what the rank draws next, the state a step later, and what was said."""

    state: dict[str, Tensor]
    drawn: Tensor
    later: dict[str, Tensor]
    said: list[str]


def save_after_a_step(folder: Path) -> Seen:
    """Train a step and save what there is then."""
    with World.join() as world:
        torch.manual_seed(world.rank)
        state = begin(world)
        step(state)
        snapshot = take_snapshot(1, *state, {"step": 1}, world)
        saved, drawn = whole_state(state), torch.rand(3)
        step(state)
        write_checkpoint(folder, snapshot, world=world.beside())
        return Seen(saved, drawn, whole_state(state), [])


def load_and_step(folder: Path) -> Seen:
    """Load the newest checkpoint into a model of another seed."""
    with World.join() as world:
        state, said = begin(world, seed=1), list[str]()
        assert load_newest_checkpoint(folder, *state, said.append, world) == {"step": 1}
        loaded, drawn = whole_state(state), torch.rand(3)
        step(state)
        return Seen(loaded, drawn, whole_state(state), said)


def save_three_ways(folder: Path, data: Path) -> list[tuple[str, bool]]:
    """Save a step and its model, then one that rank 1 cannot write, then one whose model rank 0
    cannot write. What the two failed with, and whether another rank tells it."""
    errors = []
    with World.join() as world:
        state, beside, tokenizer = begin(world), world.beside(), load_tokenizer(data)
        step(state)
        for number in (1, 2, 3):
            snapshot = take_snapshot(number, *state, {"step": number}, world)
            if number == 2 and world.rank == 1:
                limit_files(20_000)
            # What is called then comes after the checkpoint and before the model.
            then = partial(limit_files, 20_000) if number == 3 else _nothing
            try:
                write_save(folder, snapshot, shape(), tokenizer, NAMES, KEPT, then, beside)
            except LlamitaError as error:
                errors.append((f"{type(error).__name__}: {error.message}", error.is_told))
            limit_files(resource.RLIM_INFINITY)
    return errors


def _nothing() -> None:
    pass


def limit_files(size: int) -> None:
    """To a program, a file that may not grow looks like a disk that is full."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def die_while_saving(folder: Path, victim: int) -> None:
    """Save a step, then another one amid which a rank is killed."""
    with World.join() as world:
        state = begin(world)
        step(state)
        beside = world.beside()
        write_checkpoint(folder, take_snapshot(1, *state, {"step": 1}, world), world=beside)
        if world.rank == victim:
            checkpoints.own_files = _die  # type: ignore[assignment]
        write_checkpoint(folder, take_snapshot(2, *state, {"step": 2}, world), world=beside)


def _die(*arguments: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def look_for_folders(folders: list[Path]) -> str:
    """Each rank takes a folder of its own for the run's."""
    with World.join() as world:
        try:
            check_shared(folders[world.rank], world, patience=0.3)
        except Exception as error:
            return str(error)
    return "shared"


def die_while_looking(folder: Path) -> None:
    """Rank 0 is killed while the ranks see whether they share a folder."""
    with World.join() as world:
        if world.is_first:
            shared_folder._appears = _die  # type: ignore[assignment]
        check_shared(folder, world)


def learn_from(teachers: list[Path], data: Path) -> str:
    """Each rank opens a teacher of its own, the second one in bfloat16; what came of it."""
    with World.join() as world:
        if world.rank == 1:
            teacher._own_precision = lambda *of: "bfloat16"
        path = str(teachers[world.rank])
        recipe = Recipe(teacher={"model": path}, batch={"context_length": 32})  # type: ignore[arg-type]
        try:
            model, settled = load_same_teacher(
                recipe, load_tokenizer(data), torch.device("cpu"), world
            )
        except LlamitaError as error:
            return error.message
        return f"{settled.precision} {next(model.parameters()).dtype}"


def begin_with(configs: list[ModelConfig], model: Path, data: Path) -> list[dict[str, Tensor]]:
    """Sharded models with fresh weights, and one that begins with another model, put together."""
    found = []
    with World.join() as world:
        for config in configs:
            built = new_sharded_model(config, 5, None, "cpu", world)
            found.append(whole_state((built, [])))
        recipe = Recipe(init=str(model), batch={"context_length": 32})  # type: ignore[arg-type]
        start = InitialModel.open(recipe, load_tokenizer(data))
        built = new_sharded_model(start.config, 5, start, "cpu", world)
        found.append(whole_state((built, [])))
        assert (built.lm_head.weight is built.model.embed_tokens.weight) == (
            start.config.tie_word_embeddings
        )
    return found


def memory_to_build(config: ModelConfig) -> int:
    """Bytes of main memory that a rank took at the peak of building a model."""
    with World.join() as world:
        new_sharded_model(shape(), 0, None, "cpu", world)  # what comes with the first one
        before = _peak_memory(anew=True)
        model = new_sharded_model(config, 0, None, "cpu", world)
        after = _peak_memory(anew=False)
        del model
        return after - before


def _peak_memory(*, anew: bool) -> int:
    """The most memory this process has had, in bytes; counted from now on if `anew`."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

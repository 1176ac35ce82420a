"""What ranks do in the tests of whole runs and their steps."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llamita.config import preset
from llamita.data.loader import Batch, BlockLoader
from llamita.data.rows import IGNORED
from llamita.errors import DataError, LlamitaError
from llamita.model import Transformer
from llamita.training import budget
from llamita.training import run as run_module
from llamita.training.ranks.sharding import whole
from llamita.training.ranks.shared_folder import check_shared
from llamita.training.ranks.world import World
from llamita.training.run import train
from llamita.training.settings.recipe import Optimizer, Recipe
from llamita.training.sources.new_model import new_model, new_sharded_model
from llamita.training.steps import compiling
from llamita.training.steps.losses import Losses
from llamita.training.steps.optimizers import build_optimizers, clip_gradients
from llamita.training.steps.step import accumulate_gradients
from llamita.training.trainer import Trainer
from tests.training.recipes import small_recipe
from tests.training.runs import listener

CPU = torch.device("cpu")


@dataclass
class Ran:
    """What a rank was told and had at the end of a run: its weights put together, the rows that it
    read, and what it failed with."""

    said: list[str]
    weights: dict[str, Tensor] = field(default_factory=dict)
    rows: list[Tensor] = field(default_factory=list)
    steps: int = 0
    error: str = ""
    is_told: bool = False


@dataclass(frozen=True)
class Accident:
    """What befalls a `rank` after a `step`: a signal, a row that cannot be read, its death."""

    kind: str
    rank: int
    step: int


def run(data: Path, folder: Path, recipe: Recipe | None, accident: Accident | None = None) -> Ran:
    """Train, or go on, with the other ranks."""
    observer, said = listener()
    ran = Ran(said)
    rank = int(os.environ["RANK"])
    _watch(ran, accident if accident is not None and accident.rank == rank else None)
    try:
        ran.steps = train(data, folder, recipe, observer=observer).steps
    except LlamitaError as error:
        ran.error, ran.is_told = f"{type(error).__name__}: {error.message}", error.is_told
    return ran


def _watch(ran: Ran, accident: Accident | None) -> None:
    """Keep what a run shows in `ran`. The process ends soon: nothing is put back."""
    take_step, finish, next_batch = Trainer.take_step, Trainer.train, BlockLoader.next_batch

    def step(trainer: Trainer) -> dict[str, Any]:
        values = take_step(trainer)
        if accident is not None and trainer.step == accident.step:
            _befall(accident)
        return values

    def train_through(trainer: Trainer) -> None:
        finish(trainer)
        ran.weights = {
            name: whole(parameter.detach()).clone()
            for name, parameter in trainer.model.named_parameters()
        }

    def batch(loader: BlockLoader) -> Batch:
        found = next_batch(loader)
        ran.rows.append(found.input_ids)
        return found

    Trainer.take_step, Trainer.train = step, train_through  # type: ignore[method-assign]
    BlockLoader.next_batch = batch  # type: ignore[method-assign]


def _befall(accident: Accident) -> None:
    if accident.kind == "death":
        os.kill(os.getpid(), signal.SIGKILL)
    if accident.kind == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    if accident.kind == "bad row":
        raise DataError("a row is damaged.", hint="Prepare it again.")


def run_with_compiler(
    data: Path, folder: Path, recipe: Recipe, failing: tuple[int, ...], is_late: bool
) -> Ran:
    """Train where compiling fails on some ranks, at once or late, and on others does nothing."""
    rank = int(os.environ["RANK"])

    def compiled(function: Any, **options: Any) -> Any:
        def fails(*arguments: Any) -> Any:
            raise RuntimeError("no compiler here")

        is_trial = function is compiling._sum
        return fails if rank in failing and not (is_late and is_trial) else function

    torch.compile = compiled
    torch.nn.Module.compile = lambda module, **options: None  # type: ignore[method-assign,misc]
    return run(data, folder, recipe)


def run_on_own(data: list[Path], folder: Path, recipe: Recipe) -> Ran:
    """Train where each rank reads DATA of its own."""
    return run(data[int(os.environ["RANK"])], folder, recipe)


def run_in_own(data: Path, folders: list[Path], recipe: Recipe) -> Ran:
    """Train where each rank has a folder of its own for the run's."""
    run_module.check_shared = partial(check_shared, patience=0.3)
    return run(data, folders[int(os.environ["RANK"])], recipe)


def run_for_minutes(data: Path, folder: Path, recipe: Recipe) -> Ran:
    """A run whose steps are counted by a measurement, made short."""
    budget._MEASURED_SECONDS = 0.05
    length = recipe.length.model_copy(update={"steps": None, "minutes": 0.02})
    return run(data, folder, recipe.model_copy(update={"length": length}))


def gradients_of(batches: list[Batch], kind: str) -> tuple[float, int, float, dict[str, Tensor]]:
    """Loss, labelled tokens, norm and gradients of a step whose batches lie with the ranks."""
    with World.join() as world:
        config = preset("tiny", 50)
        if kind == "fsdp":
            model = new_sharded_model(config, 0, None, "cpu", world)
        else:
            model = new_model(config, 0, None)
        recipe = small_recipe()
        losses = Losses(model, recipe, CPU, None, world)
        own = batches[world.rank :: world.size]
        result = accumulate_gradients(losses.training, own, CPU, world)
        norm = clip_gradients(model, 1e9) if result.tokens else 0.0
        gradients = {
            name: whole(parameter.grad).clone()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
        return result.loss, result.tokens, norm, gradients


@dataclass(frozen=True)
class Learned:
    """Losses of steps in bfloat16, and bytes of matrices of layers that the first of them kept for
    its backward pass."""

    losses: list[float]
    kept: int


def learn_in_bfloat16(batches: list[Batch]) -> dict[str, Learned]:
    """A few steps as replicas and in shards, the latter also with layers computed again."""
    with World.join() as world:
        config, own = preset("tiny", 50), batches[world.rank :: world.size]
        replica = new_model(config, 0, None)
        shards, again = (
            new_sharded_model(config, 0, None, "cpu", world, "bfloat16") for _ in range(2)
        )
        again.checkpointing = True
        models = {"ddp": replica, "fsdp": shards, "checkpointing": again}
        return {name: _learn(model, own, world) for name, model in models.items()}


def _learn(model: Transformer, own: list[Batch], world: World) -> Learned:
    losses = Losses(model, small_recipe("machine.precision=bfloat16"), CPU, None, world).training
    matrices = [p.shape for p in model.model.layers.parameters() if p.dim() == 2]
    kept: dict[int, torch.UntypedStorage] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.shape in matrices or tensor.shape[::-1] in matrices:
            kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = losses(own[0].input_ids, own[0].labels)
    size = sum(storage.nbytes() for storage in kept.values())
    loss.backward()  # type: ignore[no-untyped-call]
    optimizers = build_optimizers(model, Optimizer(name="muon"), "float32")
    found = []
    for _ in range(4):
        model.zero_grad()
        found.append(accumulate_gradients(losses, own, CPU, world).loss)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.01
            optimizer.step()
    return Learned(found, size)


def batch_of(labelled: int, rows: int = 1, length: int = 100) -> Batch:
    """Rows of which the first `labelled` tokens are to be learned."""
    generator = torch.Generator().manual_seed(labelled)
    tokens = torch.randint(0, 50, (rows, length + 1), generator=generator)
    labels = tokens[:, 1:].clone()
    labels[:, labelled:] = IGNORED
    return Batch(tokens[:, :-1], labels)


def meet() -> list[Any]:
    """What the ranks tell each other."""
    with World.join() as world:
        beside = world.beside()
        return [
            world.sum([0.1 * (world.rank + 1), 1.0]),
            world.any(world.rank == 1, False),
            world.from_first(f"of {world.rank}"),
            beside.gather(world.rank**2),
            world.is_first,
        ]


def fail(kinds: list[str]) -> tuple[str, bool, str | None]:
    """Each rank fails as is written for it, inside what is agreed; what it is told."""
    with World.join() as world:
        try:
            with world.agreed():
                kind = kinds[world.rank]
                if kind == "mistake":
                    raise DataError(f"mistake of {world.rank}", hint="Mend it.")
                if kind == "fault":
                    raise ZeroDivisionError("a fault")
        except LlamitaError as error:
            return f"{type(error).__name__}: {error.message}", error.is_told, error.hint
        except ZeroDivisionError as error:
            return f"fault: {error}", False, None
        return "well", False, None

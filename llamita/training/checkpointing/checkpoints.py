"""Checkpoints to resume from: whole or not there.

`RUN/checkpoints/step-NNNNNNN/` is a torch.distributed.checkpoint folder beside `complete.json`,
which lists every file with its size and hash. It is written under another name, flushed and
renamed, so a kill or a full disk leaves the older ones as they were. A folder whose files do not
match its list is skipped, and named.

Of several ranks each writes its part, and any other number of them reads it. They act together:
what fails on one fails on all.
"""

from __future__ import annotations

import copy
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from llamita.errors import TrainingError
from llamita.files import replace_directory, write_json
from llamita.model import Transformer
from llamita.training.checkpointing.completeness import MARKER, examine, own_files
from llamita.training.machine.disk import cannot_write, named_disk_errors
from llamita.training.ranks.world import World

_NAME = re.compile(r"step-(\d{7,})")


@dataclass(frozen=True)
class Snapshot:
    """All that the next step depends on, as it was after `step`: a copy in main memory.

    `progress` is plain data of the loop: step, loader position, best loss.
    """

    step: int
    state: dict[str, Any]
    progress: dict[str, Any]

    @property
    def weights(self) -> dict[str, Tensor]:
        """The model's state dict."""
        weights: dict[str, Tensor] = self.state["model"]
        return weights


def take_snapshot(
    step: int,
    model: nn.Module,
    optimizers: list[Optimizer],
    progress: dict[str, Any],
    world: World = World(),
) -> Snapshot:
    """Copy the state, or this rank's part of it, so that training can go on while it is written."""
    stager = DefaultStager(StagingOptions(False, False, False, False))
    state = stager.stage(_state(model, optimizers, world.rank))
    stager.close()
    assert isinstance(state, dict)  # a future only where staging was asked to be asynchronous
    return Snapshot(step, state, copy.deepcopy(progress))


def write_checkpoint(
    directory: Path,
    snapshot: Snapshot,
    before_complete: Callable[[], None] = lambda: None,
    world: World = World(),
) -> Path:
    """Write a snapshot as a folder of `directory`, which appears when all of it is there.

    `before_complete` is called on every rank when it is written and not yet visible: what must
    never be older than the newest checkpoint is written there.

    Raises:
        TrainingError: it cannot be written, by whichever rank; nothing else changed.
    """
    final = directory / f"step-{snapshot.step:07d}"
    what = f"the checkpoint of step {snapshot.step}"

    def together() -> AbstractContextManager[None]:
        return _together(world, what, final)

    with ExitStack() as stack:
        with together():
            opened = stack.enter_context(replace_directory(final)) if world.is_first else final
        folder = world.from_first(opened)
        with world.agreed():
            _write_state(snapshot.state, folder, world, what)
        with together():
            files = own_files(folder, world.rank)
        files = {name: entry for part in world.gather(files) for name, entry in part.items()}
        with together():
            if world.is_first:
                content = {
                    "step": snapshot.step,
                    "ranks": world.size,
                    "progress": snapshot.progress,
                    "files": files,
                }
                write_json(folder / MARKER, content)
        with together():
            before_complete()
        with together():
            stack.close()  # here it gets its name
    return final


def remove_old_checkpoints(newest: Path, keep: int, keep_every: int | None) -> None:
    """Remove all but the newest `keep`, and but those of steps that `keep_every` divides.

    Folders of later steps than `newest` are torn ones that a resume went back behind: they go too.
    """
    folders = _folders(newest.parent)
    place = folders.index(newest)
    for path in folders[:place] + folders[place + keep :]:
        is_milestone = keep_every is not None and _step(path) % keep_every == 0
        if not is_milestone or path in folders[:place]:
            shutil.rmtree(path, ignore_errors=True)


def load_newest_checkpoint(
    directory: Path,
    model: Transformer,
    optimizers: list[Optimizer],
    report: Callable[[str], None],
    world: World = World(),
) -> dict[str, Any] | None:
    """Restore the newest complete checkpoint in place; its `progress`, or None if there is none.

    Each torn one that was skipped is reported. All ranks take the same one, however many saved it.

    Raises:
        TrainingError: there are checkpoints, but none is whole, or the newest does not fit.
    """
    names = world.from_first([folder.name for folder in _folders(directory)])
    for folder in [directory / name for name in names]:
        content, problem = examine(folder, world)
        if problem:
            report(f"skipping {folder.name}: {problem}")
            continue
        ranks = content.get("ranks", 1)  # those of earlier versions are of one
        state = _state(model, optimizers, world.rank if ranks == world.size else 0)
        with world.agreed():
            _restore(folder, state, model, optimizers)
        if ranks != world.size:
            # From the same state the same number everywhere, and other masks than those before.
            torch.manual_seed(int(torch.randint(2**62, ())) + world.rank)
            if model.model.draws:
                report(f"{folder.name} is of {ranks} ranks, now {world.size}: dropout draws anew")
        progress: dict[str, Any] = content["progress"]
        return progress
    if names:
        raise TrainingError(
            f"none of the {len(names)} checkpoints in {directory} is whole.",
            hint="Start again in a new folder, from its latest/ model if that is whole.",
        )
    return None


def has_checkpoints(directory: Path) -> bool:
    """Whether there is anything to resume from, whole or torn."""
    return bool(_folders(directory))


@contextmanager
def _together(world: World, what: str, path: Path) -> Iterator[None]:
    """What the system refuses any rank inside the block is the same error on all."""
    with world.agreed(), named_disk_errors(what, path):
        yield


class _Writer(FileSystemWriter):
    """PyTorch's, one file a rank, but what the system said reaches the other ranks as well.

    It reports a full disk as an error of its own, whose cause does not travel.
    """

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Any:
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:
            said = _system_error(error)
            if said is None:
                raise
            raise said from error


def _write_state(state: dict[str, Any], folder: Path, world: World, what: str) -> None:
    _silence_pytorch()
    alone = world.size == 1
    # What is written lies in main memory: to copy ahead of it would only wake each rank's GPU 0.
    writer = _Writer(folder, per_thread_copy_ahead=0)
    try:
        save(state, storage_writer=writer, process_group=world.group, no_dist=alone)
    except CheckpointException as error:
        rank = min(error.failures)
        said = _system_error(error.failures[rank][0]) or OSError(None, None)
        whose = f"rank {rank}: " if rank else ""
        raise cannot_write(what, folder.parent, said, whose) from error
    except (OSError, RuntimeError) as error:
        if not alone:
            raise  # a connection that broke
        said = _system_error(error) or OSError(None, None)
        raise cannot_write(what, folder.parent, said) from error


def _restore(
    folder: Path, state: dict[str, Any], model: nn.Module, optimizers: list[Optimizer]
) -> None:
    """Read a checkpoint into `state` and from there into its owners; no rank waits for another."""
    _silence_pytorch()
    try:
        load(state, checkpoint_id=folder, no_dist=True)
        set_state_dict(
            model,
            optimizers,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
    except (RuntimeError, KeyError, ValueError, CheckpointException) as error:
        raise TrainingError(
            f"{folder} is whole, but not of this model and these optimizers.",
            hint="It may be of another version of llamita: go on with that one, or start a "
            "new run from the model in latest/.",
        ) from error
    for name, random_state in state["rng"].items():
        _rng(name).set_rng_state(random_state)


def _system_error(error: BaseException | None) -> OSError | None:
    """What the system said, where it is among the causes."""
    while error is not None:
        if isinstance(error, OSError):
            return error
        if isinstance(error, CheckpointException):
            error = next((failure for failure, _ in error.failures.values()), None)
        else:
            error = error.__cause__ or error.__context__
    return None


def _state(model: nn.Module, optimizers: list[Optimizer], rank: int) -> dict[str, Any]:
    untouched = [optimizer for optimizer in optimizers if not optimizer.state]
    if untouched:
        # PyTorch gives them their state by a step with a rate of zero, which AdamW counts.
        get_state_dict(model, untouched)
        for optimizer in untouched:
            for state in optimizer.state.values():
                if "step" in state:
                    state["step"].zero_()
    model_state, optimizer_state = get_state_dict(model, optimizers)
    devices = {"cpu", next(model.parameters()).device.type}
    # Each rank's has a name of its own; what several ranks call the same is saved once.
    of_rank = f" {rank}" if rank else ""
    rng = {f"{device}{of_rank}": _rng(device).get_rng_state() for device in sorted(devices)}
    return {"model": model_state, "optimizer": optimizer_state, "rng": rng}


def _rng(name: str) -> Any:
    """Where the random state of a device is kept, by the name it has in a checkpoint."""
    device = name.partition(" ")[0]
    return torch if device == "cpu" else torch.get_device_module(device)


def _folders(directory: Path) -> list[Path]:
    """Checkpoint folders, newest first."""
    if not directory.is_dir():
        return []
    named = [path for path in directory.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(named, key=_step, reverse=True)


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _silence_pytorch() -> None:
    """Leave out the note that one process saves alone, which is what is meant.

    For good: to take a filter back again is not safe while another thread is at work.
    """
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable")

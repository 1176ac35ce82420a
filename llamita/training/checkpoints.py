"""Checkpoints to resume from: whole or not there.

`RUN/checkpoints/step-NNNNNNN/` is a torch.distributed.checkpoint folder beside `complete.json`,
which lists every file with its size and hash. It is written under another name, flushed and
renamed, so a kill or a full disk leaves the older ones as they were. A folder whose files do not
match its list is skipped, and named.
"""

from __future__ import annotations

import copy
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from llamita.errors import LlamitaError, TrainingError
from llamita.files import read_json, replace_directory, sha256_file, write_json
from llamita.training.disk import cannot_write

_NAME = re.compile(r"step-(\d{7,})")
_COMPLETE = "complete.json"


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
    step: int, model: nn.Module, optimizers: list[Optimizer], progress: dict[str, Any]
) -> Snapshot:
    """Copy the state, so that training can go on while it is written."""
    stager = DefaultStager(StagingOptions(False, False, False, False))
    state = stager.stage(_state(model, optimizers))
    stager.close()
    assert isinstance(state, dict)  # a future only where staging was asked to be asynchronous
    return Snapshot(step, state, copy.deepcopy(progress))


def write_checkpoint(
    directory: Path, snapshot: Snapshot, before_complete: Callable[[], None] = lambda: None
) -> Path:
    """Write a snapshot as a folder of `directory`, which appears when all of it is there.

    `before_complete` is called when it is written and not yet visible: what must never be older
    than the newest checkpoint is written there.

    Raises:
        TrainingError: it cannot be written; nothing else changed.
    """
    final = directory / f"step-{snapshot.step:07d}"
    try:
        with replace_directory(final) as folder:
            _write_state(snapshot.state, folder)
            files = {
                path.name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
                for path in sorted(folder.iterdir())
            }
            content = {"step": snapshot.step, "progress": snapshot.progress, "files": files}
            write_json(folder / _COMPLETE, content)
            before_complete()
    except OSError as error:
        raise cannot_write(f"the checkpoint of step {snapshot.step}", final, error) from error
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
    model: nn.Module,
    optimizers: list[Optimizer],
    report: Callable[[str], None],
) -> dict[str, Any] | None:
    """Restore the newest complete checkpoint in place; its `progress`, or None if there is none.

    Each torn one that was skipped is reported.

    Raises:
        TrainingError: there are checkpoints, but none is whole, or the newest does not fit.
    """
    folders = _folders(directory)
    for folder in folders:
        problem = _damage(folder)
        if problem:
            report(f"skipping {folder.name}: {problem}")
            continue
        state = _state(model, optimizers)
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
        for device, random_state in state["rng"].items():
            _rng(device).set_rng_state(random_state)
        progress: dict[str, Any] = read_json(folder / _COMPLETE)["progress"]
        return progress
    if folders:
        raise TrainingError(
            f"none of the {len(folders)} checkpoints in {directory} is whole.",
            hint="Start again in a new folder, from its latest/ model if that is whole.",
        )
    return None


def has_checkpoints(directory: Path) -> bool:
    """Whether there is anything to resume from, whole or torn."""
    return bool(_folders(directory))


def _write_state(state: dict[str, Any], folder: Path) -> None:
    _silence_pytorch()
    try:
        save(state, checkpoint_id=folder, no_dist=True)
    except (RuntimeError, CheckpointException) as error:
        # PyTorch's writer reports a full disk as an error of its own.
        raise _system_error(error) or OSError(None, None) from error


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


def _state(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any]:
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
    rng = {device: _rng(device).get_rng_state() for device in sorted(devices)}
    return {"model": model_state, "optimizer": optimizer_state, "rng": rng}


def _rng(device: str) -> Any:
    return torch if device == "cpu" else torch.get_device_module(device)


def _folders(directory: Path) -> list[Path]:
    """Checkpoint folders, newest first."""
    if not directory.is_dir():
        return []
    named = [path for path in directory.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(named, key=_step, reverse=True)


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint folder, or None."""
    try:
        content = read_json(folder / _COMPLETE)
        files = content["files"]
        content["progress"]["step"], files[".metadata"]
        for name, expected in files.items():
            path = folder / name
            if not path.is_file():
                return f"its file {name} is missing"
            if path.stat().st_size != expected["bytes"]:
                size = path.stat().st_size
                return f"its file {name} has {size} bytes instead of {expected['bytes']}"
            if sha256_file(path) != expected["sha256"]:
                return f"the content of its file {name} has changed"
    except (LlamitaError, KeyError, TypeError, AttributeError):
        return f"it was not finished (no whole {_COMPLETE})"
    return None


def _silence_pytorch() -> None:
    """Leave out the note that one process saves alone, which is what is meant.

    For good: to take a filter back again is not safe while another thread is at work.
    """
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable")

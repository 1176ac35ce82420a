"""Checkpoints to resume from: whole or not there.

`RUN/checkpoints/step-NNNNNNN/` is a torch.distributed.checkpoint folder beside `complete.json`,
which lists every file with its size and hash. It is written under another name, flushed and
renamed, so a kill or a full disk leaves the older ones as they were. A folder whose files do not
match its list is skipped, and named.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from llamita.errors import LlamitaError, TrainingError
from llamita.files import read_json, replace_directory, sha256_file, write_json

_NAME = re.compile(r"step-(\d{7,})")
_COMPLETE = "complete.json"


def save_checkpoint(
    directory: Path,
    step: int,
    model: nn.Module,
    optimizers: list[Optimizer],
    progress: dict[str, Any],
    keep: int,
) -> Path:
    """Save all that the next step depends on, then remove all but the newest `keep`.

    `progress` is plain data of the loop (step, loader position, best loss). Folders of later
    steps are torn ones that a resume went back behind: they go too.
    """
    final = directory / f"step-{step:07d}"
    with replace_directory(final) as folder:
        state = _state(model, optimizers)
        _write(state, folder, step)
        files = {
            path.name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
            for path in sorted(folder.iterdir())
        }
        write_json(folder / _COMPLETE, {"step": step, "progress": progress, "files": files})
    folders = _folders(directory)
    newest = folders.index(final)
    for path in folders[:newest] + folders[newest + keep :]:
        shutil.rmtree(path, ignore_errors=True)
    return final


def load_newest_checkpoint(
    directory: Path,
    model: nn.Module,
    optimizers: list[Optimizer],
    report: Callable[[str], None],
) -> dict[str, Any] | None:
    """Restore the newest complete checkpoint in place; its `progress`, or None if there is none.

    Each torn one that was skipped is reported.

    Raises:
        TrainingError: there are checkpoints, but none is whole.
    """
    folders = _folders(directory)
    for folder in folders:
        problem = _damage(folder)
        if problem:
            report(f"skipping {folder.name}: {problem}")
            continue
        state = _state(model, optimizers)
        with _quiet():
            load(state, checkpoint_id=folder, no_dist=True)
        set_state_dict(
            model,
            optimizers,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        torch.set_rng_state(state["rng"]["cpu"])
        if "cuda" in state["rng"]:
            torch.cuda.set_rng_state(state["rng"]["cuda"])
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


def _write(state: dict[str, Any], folder: Path, step: int) -> None:
    try:
        with _quiet():
            save(state, checkpoint_id=folder, no_dist=True)
    except (RuntimeError, CheckpointException) as error:
        # PyTorch's writer reports a full disk as an error of its own.
        free = shutil.disk_usage(folder).free
        raise TrainingError(
            f"cannot write the checkpoint of step {step}; the disk has {free / 1e6:,.1f} MB free.",
            hint="Make room and run the same command again: the earlier checkpoints are whole.",
        ) from error


def _state(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizers)
    rng = {"cpu": torch.get_rng_state()}
    if next(model.parameters()).is_cuda:
        rng["cuda"] = torch.cuda.get_rng_state()
    return {"model": model_state, "optimizer": optimizer_state, "rng": rng}


def _folders(directory: Path) -> list[Path]:
    """Checkpoint folders, newest first."""
    if not directory.is_dir():
        return []
    named = [(_NAME.fullmatch(path.name), path) for path in directory.iterdir()]
    steps = [(int(match[1]), path) for match, path in named if match]
    return [path for _, path in sorted(steps, reverse=True)]


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint folder, or None."""
    try:
        content = read_json(folder / _COMPLETE)
        files = content["files"]
        content["progress"]["step"]
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the note that one process saves alone, which is what is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is")
        yield

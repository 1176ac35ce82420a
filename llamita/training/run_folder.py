"""A run's folder while it trains: locked against other processes, and seen by all of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from llamita.errors import TrainingError
from llamita.files import remove_leftovers
from llamita.training.ranks.shared_folder import check_shared
from llamita.training.ranks.world import World
from llamita.training.records.manifest import RUN_MANIFEST_NAME

LOCK_NAME = ".lock"


@contextmanager
def held(run: Path, world: World) -> Iterator[None]:
    """Make the folder if there is none and keep other runs out of it; all ranks together.

    What a killed run left half written is removed, and so is, at the end, a folder that was made
    here and of which nothing came.

    Raises:
        TrainingError: it is in use, no folder, or not one that all ranks see.
    """
    with ExitStack() as stack:
        with world.agreed():
            if world.is_first:
                stack.enter_context(_locked(run))
        check_shared(run, world)
        yield


@contextmanager
def _locked(run: Path) -> Iterator[None]:
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


def check_free(run: Path, beside: Sequence[str] = ()) -> None:
    """A new run may lie in a folder that is empty, or left by one killed at birth; `beside` are
    names of what else may be there.

    Raises:
        TrainingError: it holds other things.
    """
    ours = (RUN_MANIFEST_NAME, LOCK_NAME, *beside)
    others = sorted(path.name for path in run.iterdir() if path.name not in ours)
    if others:
        raise TrainingError(
            f"{run} is no training run and not empty (it has {others[0]}).",
            hint="Choose another folder with -o.",
        )

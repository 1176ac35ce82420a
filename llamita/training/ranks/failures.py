"""When ranks fail: one of them tells it, by its number, and the others keep quiet.

Three kinds of failure meet here. What all ranks find alike (a run that has gone wrong) is told by
rank 0. What one rank alone finds (a row that cannot be read, no memory) it tells itself. And ranks
whose connection breaks have nothing to tell but that another one ended: if that one was killed and
left no word, the first to notice says so. Words are left in the store by which the ranks found each
other, which torchrun keeps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch.distributed import DistError
from torch.distributed.distributed_c10d import Store

from llamita.errors import LlamitaError, TrainingError

_WAIT = timedelta(seconds=3)  # for rank 0 to come to the same failure
_COUNT = "failures"


@contextmanager
def one_voice(rank: int, store: Store) -> Iterator[None]:
    """Mark errors that another rank tells (`is_told`), and put this rank's number before others.

    Raises:
        TrainingError: in place of a broken connection.
    """
    try:
        yield
    except LlamitaError as error:
        _leave_word(store, rank, error.message)
        if rank == 0 or error.is_told:
            raise
        if _word_of_first(store) == error.message:
            error.is_told = True
            raise
        message = f"rank {rank}: {error.message}"
        raise type(error)(message, hint=error.hint) from error
    except RuntimeError as error:
        if not is_broken_connection(error):
            _leave_word(store, rank, repr(error))
            raise
        lost = TrainingError(
            f"rank {rank} lost the others: one of them ended without a word (killed, by hand or by "
            "a system without memory for it), or what connects them failed: "
            f"{first_line(error)}",
            hint="What was saved before is whole: the same command goes on from there.",
        )
        lost.is_told = not _is_first_word(store)
        raise lost from error
    except Exception as error:
        _leave_word(store, rank, repr(error))
        raise


def is_broken_connection(error: Exception) -> bool:
    """Whether an error says no more than that another rank is not there."""
    return isinstance(error, DistError) or "gloo" in str(error) or "NCCL" in str(error)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that there was no room, on the device or in main memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return "allocate memory" in str(error)


def first_line(error: Exception) -> str:
    """What an error says, short enough for a line of ours; PyTorch's may go on for a page."""
    return next(iter(str(error).strip().splitlines()), repr(error))[:200]


def _leave_word(store: Store, rank: int, message: str) -> None:
    with contextlib.suppress(RuntimeError):  # whoever kept the store is gone
        store.add(_COUNT, 1)
        store.set(f"rank {rank}", message)


def _word_of_first(store: Store) -> str | None:
    with contextlib.suppress(RuntimeError):
        store.wait(["rank 0"], _WAIT)
        return str(store.get("rank 0"), "utf-8")
    return None


def _is_first_word(store: Store) -> bool:
    try:
        return bool(store.add(_COUNT, 1) == 1)
    except RuntimeError:
        return True


@contextmanager
def memory_errors() -> Iterator[None]:
    """Say what to do where a batch or a model does not fit the memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            "there is not enough memory for this model and batch.",
            hint="Lower batch.sequences (and raise batch.accumulation to make up for it), "
            "batch.context_length, or the model's size.",
        ) from error

"""The processes of one run: which of them this is, and what they agree on.

`torchrun --nproc-per-node N -m llamita train …` starts N processes (ranks) and tells each its
number in the environment. Without it there is one, and nothing here costs anything.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from llamita.errors import LlamitaError, TrainingError
from llamita.training.ranks.failures import first_line, one_voice

T = TypeVar("T")

# How long a rank waits for the others: one of them may hash or copy terabytes meanwhile. Those of
# a rank that ended learn it at once.
_PATIENCE = timedelta(hours=2)
# How long it looks for them at the start. A queue may start machines minutes apart.
_MEETING = timedelta(minutes=10)


@dataclass(frozen=True)
class World:
    """This process as one of `size`; `local_rank` is its number of `local_size` on this machine.

    The ranks must all call a method that has an answer for them in the same order. They meet in
    main memory (gloo), whatever they compute on, so that a value costs no wait for a GPU.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    group: dist.ProcessGroup | None = None

    @classmethod
    @contextmanager
    def join(cls) -> Iterator[World]:
        """The world that torchrun made, or that of this process alone, until the block ends.

        A GPU of this machine becomes the process's own, if there are as many. What fails on
        several ranks is told by one of them (see `failures`). A world within a world is the same.

        Raises:
            TrainingError: the environment speaks of several processes, but not of which one this is
                or where they meet; or they do not meet there.
        """
        size = _number("WORLD_SIZE", 1)
        if size == 1:
            yield cls()
            return
        rank = _number("RANK", None)
        local_rank = _number("LOCAL_RANK", rank)
        world = cls(rank, size, local_rank, _number("LOCAL_WORLD_SIZE", size))
        if dist.is_initialized():
            yield world
            return
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if not os.environ.get(name):
                raise _no_world(name)
        has_gpu = torch.cuda.is_available() and local_rank < torch.cuda.device_count()
        if has_gpu:
            torch.cuda.set_device(local_rank)
        store = world._meeting_place()
        try:
            # torchrun may start the ranks again after a failure, whose words are still there.
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            with one_voice(rank, PrefixStore(f"llamita/{attempt}", store)):
                dist.init_process_group(
                    "cpu:gloo,cuda:nccl" if has_gpu else "gloo",
                    store=store,
                    rank=rank,
                    world_size=size,
                    timeout=_PATIENCE,
                )
                yield world
                dist.barrier()  # nobody hangs up on one that is still talking
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    def _meeting_place(self) -> Store:
        try:
            store: Store = next(rendezvous("env://", timeout=_MEETING))[0]
        except (RuntimeError, ValueError) as error:
            place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            lost = TrainingError(
                f"rank {self.rank} did not meet the others at {place}: {first_line(error)}",
                hint="That is the first machine (MASTER_ADDR, MASTER_PORT). Is it up, does its "
                "firewall let this one in, and did all the processes start?",
            )
            lost.is_told = self.local_rank > 0  # by another of this machine
            raise lost from error
        store.set_timeout(_PATIENCE)
        return store

    @property
    def is_first(self) -> bool:
        """Whether this rank writes the files and talks to the user."""
        return self.rank == 0

    def beside(self) -> World:
        """The same ranks once more: another thread may call them while this one calls these."""
        if self.size == 1:
            return self
        group = dist.new_group(backend="gloo", timeout=_PATIENCE)
        return dataclasses.replace(self, group=group)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each value summed over all ranks, in their order, in float64: the same bits on all."""
        if self.size == 1:
            return list(values)
        own = torch.tensor(values, dtype=torch.float64)
        parts = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(parts, own, group=self.group)
        return [sum(column) for column in zip(*(part.tolist() for part in parts), strict=True)]

    def any(self, *flags: bool) -> list[bool]:
        """Whether each flag is set on any rank."""
        return [count > 0 for count in self.sum([float(flag) for flag in flags])]

    def from_first(self, value: T) -> T:
        """What rank 0 gave; what the others gave is forgotten."""
        if self.size == 1:
            return value
        box: list[Any] = [value if self.is_first else None]
        dist.broadcast_object_list(box, src=0, group=self.group)
        shared: T = box[0]
        return shared

    def gather(self, value: T) -> list[T]:
        """What each rank gave, in their order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """What fails in the block on one rank fails on all of them, at its end.

        Nothing in the block may wait for the other ranks: one that fails before comes to the end
        without. What does wait must tell the others itself of a failure, so that all of them come
        to the end: `write_whole` and PyTorch's `save` do.

        Raises:
            LlamitaError: that of the first rank with one. "rank N: " stands before it where it is
                not rank 0's. Rank 0 tells it (`is_told` on the others).
        """
        if self.size == 1:
            yield
            return
        own: Exception | None = None
        try:
            yield
        except Exception as error:
            own = error
        failures = self.gather(_portable(own))
        for rank, failure in enumerate(failures):
            if failure is not None:
                kind, message, hint = failure
                if own is not None and not isinstance(own, LlamitaError):
                    raise own  # no user's mistake: this rank has the traceback
                shared = kind(f"rank {rank}: {message}" if rank else message, hint=hint)
                shared.is_told = not self.is_first
                raise shared from own

    def check_device(self, device: str) -> None:
        """Raise a TrainingError where not every process can have a `device` to itself."""
        if self.size > 1 and device == "mps":
            raise TrainingError(
                f"{self.size} processes cannot share an Apple GPU.",
                hint="Train with one, or on the CPU: --set machine.device=cpu",
            )
        if self.size == 1 or device != "cuda":
            return
        count = torch.cuda.device_count()
        if self.local_rank >= count:
            raise TrainingError(
                f"process {self.local_rank + 1} of this machine has no GPU to itself; there are "
                f"{count}.",
                hint=f"Start as many processes as GPUs: torchrun --nproc-per-node {count}",
            )


def _portable(error: Exception | None) -> tuple[type[LlamitaError], str, str | None] | None:
    if error is None:
        return None
    if isinstance(error, LlamitaError):
        return type(error), error.message, error.hint
    return TrainingError, f"{type(error).__name__}: {error}", None


def _number(name: str, default: int | None) -> int:
    value = os.environ.get(name, "")
    if value.isdecimal():
        return int(value)
    if default is None or value:
        raise _no_world(name)
    return default


def _no_world(name: str) -> TrainingError:
    value = os.environ.get(name)
    return TrainingError(
        f"the environment speaks of several processes (WORLD_SIZE), but {name} is "
        f"{'not set' if not value else repr(value)}.",
        hint="Start them with torchrun --nproc-per-node N -m llamita train …, or unset WORLD_SIZE.",
    )

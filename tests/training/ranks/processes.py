"""Several ranks for a test: processes as torchrun starts them, without the seconds that that takes.

A helper process imports the program once; every rank is a fork of it. What a rank is to do is a
function at the top of a module, as for any other process.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.distributed import TCPStore

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["llamita.training.run", "llamita.data.prepare", "torch._dynamo"])


class Killed(Exception):
    """A rank ended without a word."""


def run_ranks(
    count: int, job: Callable[..., Any], *arguments: Any, seconds: float = 120
) -> list[Any]:
    """Call `job(*arguments)` on `count` ranks; what each of them returned or raised.

    `job` finds its rank as the program does: by `World.join`.
    """
    # As torchrun does, the starting process keeps the store in which the ranks meet.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    lines, processes = [], []
    for rank in range(count):
        line, of_rank = _PROCESSES.Pipe(duplex=False)
        process = _PROCESSES.Process(
            target=_be_rank, args=(rank, count, store.port, of_rank, job, arguments), daemon=True
        )
        process.start()
        of_rank.close()
        lines.append(line)
        processes.append(process)
    deadline = time.monotonic() + seconds
    try:
        return [_heard(line, deadline) for line in lines]
    finally:
        for process in processes:
            process.join(5)
            process.kill()
            process.join()


def all_well(outcomes: list[Any]) -> list[Any]:
    """What the ranks returned; what one raised is raised."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def _be_rank(
    rank: int,
    count: int,
    port: int,
    line: Connection,
    job: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(count),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        outcome = job(*arguments)
    except BaseException as error:
        outcome = error
    line.send_bytes(pickle.dumps(outcome))  # `send` would share a tensor's memory, which goes


def _heard(line: Connection, deadline: float) -> Any:
    if not line.poll(max(0.0, deadline - time.monotonic())):
        raise AssertionError("the ranks wait for each other")
    try:
        return pickle.loads(line.recv_bytes())
    except EOFError:
        return Killed()

"""Batches made ahead in a background thread, so that training never waits for the disk.

The thread draws from the loader in its order, and each batch carries the loader's state behind it:
what is saved is the position of what was used, however much further the thread has read.
"""

from __future__ import annotations

import threading
import weakref
from queue import Empty, Queue
from typing import Any

from llamita.data.loader import Batch, BlockLoader

AHEAD = 4

_Made = tuple[Batch, dict[str, Any]] | BaseException


class Prefetcher:
    """A `BlockLoader` that reads ahead; the batches and states are those of the loader alone.

    The thread begins with the first batch that is asked for and ends with `close`, or with the
    prefetcher itself. The loader belongs to it: nothing else may draw from it.

    Args:
        ahead: how many batches are kept ready.
    """

    def __init__(self, loader: BlockLoader, ahead: int = AHEAD) -> None:
        self._loader = loader
        self._ahead = ahead
        self._used = loader.state_dict()
        self._thread: _Thread | None = None

    def next_batch(self) -> Batch:
        """The next batch.

        Raises:
            DataError, OSError: reading it failed; what came before was given.
        """
        if self._thread is None:
            self._loader.load_state_dict(self._used)
            self._thread = _Thread(self._loader, self._ahead)
            weakref.finalize(self, self._thread.stop)
        made = self._thread.queue.get()
        if isinstance(made, BaseException):
            self.close()
            raise made
        batch, self._used = made
        return batch

    @property
    def notes(self) -> list[str]:
        """What a person should know about the rows."""
        return self._loader.notes

    @property
    def epochs(self) -> list[float]:
        """How often each source was used so far."""
        drawn, rows = self._used["drawn"], self._used["rows"]
        return [count / of for count, of in zip(drawn, rows, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """The loader's state behind the last batch that was used."""
        return {**self._used, "drawn": list(self._used["drawn"])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; DataError where it is of other data or settings."""
        self.close()
        self._loader.load_state_dict(state)
        self._used = self._loader.state_dict()

    def close(self) -> None:
        """End the thread. A batch that is asked for later begins another, at the same place."""
        if self._thread is not None:
            self._thread.stop()
            self._thread.join()
            self._thread = None


class _Thread(threading.Thread):
    """Fills `queue` until it is stopped or fails; the failure is the last thing in the queue.

    It knows nothing of the prefetcher, so that this can be collected while it runs.
    """

    def __init__(self, loader: BlockLoader, ahead: int) -> None:
        super().__init__(name="llamita-prefetch", daemon=True)
        self.queue: Queue[_Made] = Queue(maxsize=ahead)
        self._loader = loader
        self._stopping = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                batch = self._loader.next_batch()
                self.queue.put((batch, self._loader.state_dict()))
        except BaseException as error:
            self.queue.put(error)

    def stop(self) -> None:
        """Ask it to end; emptying the queue wakes it where it waits for room."""
        self._stopping.set()
        while True:
            try:
                self.queue.get_nowait()
            except Empty:
                return

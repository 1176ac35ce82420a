"""Saving beside the training loop: one thread writes what was copied, one save at a time.

torch.distributed.checkpoint's `async_save` ends where its own files are written. Their hashes, the
models, the marker of completeness and the removal of old checkpoints come after them and belong
into the background as well, and `latest/` is written from the copy that `async_save` keeps to
itself. So one thread does all of it, with the same stager and writer; of several ranks each has
one, and they meet in a group of their own (`World.beside`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from torch import Tensor

from llamita.config import ModelConfig
from llamita.files import replace_directory
from llamita.formats.detect import BEST
from llamita.formats.huggingface import save_weights
from llamita.formats.peft_write import Adapter, merge_adapters, write_adapter
from llamita.formats.stored import StoredTensor
from llamita.tokenizer.base import Tokenizer
from llamita.training.checkpointing.checkpoints import (
    Snapshot,
    remove_old_checkpoints,
    write_checkpoint,
)
from llamita.training.machine.disk import named_disk_errors
from llamita.training.ranks.gathering import write_whole
from llamita.training.ranks.world import World
from llamita.training.settings.recipe import Checkpoints

ADAPTER = "adapter"


class BackgroundWriter:
    """Runs one piece of writing at a time in a thread; what it raised comes out at the next call.

    As a context it waits at the end for what is being written.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Begin to write, after what is being written."""
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(write,), name="saving")
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether the next call will raise what the writing raised."""
        return self._error is not None

    def check(self) -> None:
        """Raise what the writing raised, without waiting for it."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait for what is being written, and raise what it raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def __enter__(self) -> BackgroundWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.wait()
        except BaseException:
            if error is None:  # else the loop's own error is the one to tell
                raise

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException as error:
            self._error = error


def write_save(
    run: Path,
    snapshot: Snapshot,
    config: ModelConfig,
    tokenizer: Tokenizer,
    names: Sequence[str],
    checkpoints: Checkpoints,
    before_complete: Callable[[], None],
    world: World = World(),
    adapter: Adapter | None = None,
) -> None:
    """Write a checkpoint into `run`, and its model under `names` (`latest`, and perhaps `best`).

    All ranks together. The models are there before the checkpoint counts: whoever is killed in
    between finds them newer than it, never older, and takes the steps since again.

    Args:
        before_complete: called on rank 0 before the models are written.
        adapter: what is trained, where that is not the whole model.

    Raises:
        TrainingError: something cannot be written; the older checkpoints are whole.
    """

    def models_before_it_counts() -> None:
        with world.agreed():
            if world.is_first:
                before_complete()
        write_models(run, names, config, snapshot.weights, tokenizer, world, adapter)

    newest = write_checkpoint(run / "checkpoints", snapshot, models_before_it_counts, world)
    if world.is_first:
        remove_old_checkpoints(newest, checkpoints.keep, checkpoints.keep_every)


def write_models(
    run: Path,
    names: Sequence[str],
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    world: World = World(),
    adapter: Adapter | None = None,
) -> None:
    """Write a model as `names` of a run. Of one that is sharded, rank 0 gathers each tensor, once.

    Where adapters are trained, models have them merged. They lie alone in `adapter/`: the best, or
    the latest while none is known.

    Raises:
        TrainingError: one cannot be written; that one is as it was.
    """

    def write(whole: Mapping[str, StoredTensor]) -> None:
        first, *others = [run / name for name in names]
        merged = whole if adapter is None else merge_adapters(whole, adapter.scale)
        write_model(config, merged, first, tokenizer)
        for directory in others:
            _write_again(first, directory)
        if adapter is not None and (BEST in names or not (run / BEST).exists()):
            tied = config.tie_word_embeddings
            with named_disk_errors(f"the adapter {run / ADAPTER}", run):
                write_adapter(run / ADAPTER, whole, adapter, tokenizer, is_tied=tied)

    with world.agreed():
        write_whole(world, weights, write)


def write_model(
    config: ModelConfig, weights: Mapping[str, StoredTensor], directory: Path, tokenizer: Tokenizer
) -> None:
    """Write a model directory of a run, in place of the one there.

    Raises:
        TrainingError: it cannot be written; the one there is as it was.
    """
    with named_disk_errors(f"the model {directory}", directory):
        save_weights(config, weights, directory, tokenizer, overwrite=True)


def _write_again(model: Path, directory: Path) -> None:
    """The same model under another name; both have the same file of weights where links exist."""
    with (
        named_disk_errors(f"the model {directory}", directory),
        replace_directory(directory) as temporary,
    ):
        shutil.copytree(model, temporary, copy_function=_link_weights, dirs_exist_ok=True)


def _link_weights(source: str, target: str) -> None:
    # Small files are copied: somebody may edit a config.
    if source.endswith(".safetensors"):
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)

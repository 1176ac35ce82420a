"""The saves of a run in progress: what is copied for them, and what is restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from llamita.formats.detect import LATEST, find_model
from llamita.formats.peft_write import Adapter
from llamita.model import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.training.checkpointing.checkpoints import load_newest_checkpoint, take_snapshot
from llamita.training.checkpointing.saving import BackgroundWriter, write_models, write_save
from llamita.training.ranks.world import World
from llamita.training.settings.recipe import Recipe


class Saver:
    """Saves model and optimizers with all ranks together, beside the steps, and restores them.

    `writer` does the writing and tells what it failed with.
    """

    def __init__(
        self,
        model: Transformer,
        optimizers: list[Optimizer],
        tokenizer: Tokenizer,
        recipe: Recipe,
        world: World,
    ) -> None:
        self._model = model
        self._optimizers = optimizers
        self._tokenizer = tokenizer
        self._settings = recipe.checkpoints
        self._adapter = _adapter(recipe)
        self._world = world
        self._beside = world.beside()
        self.writer = BackgroundWriter()

    def begin(
        self,
        run: Path,
        step: int,
        progress: dict[str, Any],
        names: Sequence[str],
        before_complete: Callable[[], None],
    ) -> None:
        """Copy what there is after `step` and begin to write it: see `write_save`."""
        snapshot = take_snapshot(step, self._model, self._optimizers, progress, self._world)
        write = partial(
            write_save,
            run,
            snapshot,
            self._model.config,
            self._tokenizer,
            names,
            self._settings,
            before_complete,
            self._beside,
            self._adapter,
        )
        self.writer.start(write)

    def restore(self, run: Path, report: Callable[[str], None]) -> dict[str, Any] | None:
        """Go back to the newest whole checkpoint: its `progress`, or None if there is none.

        The model of `latest/` is then that of this checkpoint.
        """
        progress = load_newest_checkpoint(
            run / "checkpoints", self._model, self._optimizers, report, self._world
        )
        if progress is not None:
            config, weights = self._model.config, self._model.state_dict()
            write_models(
                run, [LATEST], config, weights, self._tokenizer, self._world, self._adapter
            )
        return progress

    def is_milestone(self, step: int) -> bool:
        """Whether what there is after `step` is kept for good."""
        every = self._settings.keep_every
        return every is not None and step % every == 0


def _adapter(recipe: Recipe) -> Adapter | None:
    """What a folder of PEFT will say of the adapters of a run, if it trains any."""
    lora, base = recipe.lora, Path(recipe.init or "")
    if lora is None:
        return None
    if base.exists():
        base = find_model(base).absolute()
    return Adapter(str(base), lora.rank, lora.alpha, lora.dropout, lora.targets, lora.tokens)

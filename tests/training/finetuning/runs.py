"""Fine-tuning runs that take seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llamita.data.prepare import Reporter
from llamita.training.finetuning.chat_data import Chats
from llamita.training.finetuning.finetune import FineTuned, prepare_finetuning, recipe_for
from llamita.training.records.observer import SILENT, Observer
from llamita.training.settings.recipe import Recipe

QUICK = (
    "watch.validations=2", "watch.log_every=1", "watch.sample_tokens=4",
    "machine.precision=float32", "machine.compile=off",
)  # fmt: skip


class Said(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def quick_recipe(model: Path, *assignments: str, steps: int | None = 4) -> Recipe:
    flags: dict[str, dict[str, Any]] = {"length": {"steps": steps} if steps else {}}
    return recipe_for(model, None, [*QUICK, *assignments], flags)


def finetune(
    model: Path,
    chats: Path | Chats,
    out: Path,
    *assignments: str,
    steps: int | None = 4,
    epochs: float | None = None,
    chat_format: str | None = None,
    observer: Observer = SILENT,
    reporter: Reporter | None = None,
) -> FineTuned:
    """`llamita finetune` with settings for tests."""
    wanted = chats if isinstance(chats, Chats) else Chats([chats])
    recipe = quick_recipe(model, *assignments, steps=steps)
    prepared = prepare_finetuning(
        model, wanted, out, recipe, epochs=epochs, chat_format=chat_format, reporter=reporter
    )
    return prepared.train(observer)

"""What a run looks at on its way: the loss on held-out text, and a sample of the model's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from llamita.data.training_data import TrainingData
from llamita.model import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.training.health import check_finite_state, check_validation
from llamita.training.observer import one_line
from llamita.training.recipe import Recipe
from llamita.training.step import LossSum
from llamita.training.validation import sample, validate, validation_sets


@dataclass(frozen=True)
class Look:
    """`loss` on held-out text in nats a token (None where nothing is held out), `values` for the
    log, and `text` for a person."""

    loss: float | None
    values: dict[str, Any]
    text: str


class Watcher:
    """Looks at the model of a run, always at the same held-out rows.

    `notes` are lines on what it cannot look at.
    """

    def __init__(
        self, model: Transformer, tokenizer: Tokenizer, data: TrainingData, recipe: Recipe
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._recipe = recipe
        self._device = torch.device(recipe.machine.device)
        self._sets = validation_sets(data, recipe)
        self.notes = _notes(data, {one.name for one in self._sets})

    def look(self, loss_sum: LossSum, step: int, *, samples: bool) -> Look:
        """Validate, and draw a sample if `samples`.

        Raises:
            TrainingError: the weights or the loss are no numbers.
        """
        check_finite_state(self._model, [], step)
        loss, values, text = None, {}, ""
        if self._sets:
            found = validate(self._model, loss_sum, self._sets, self._device)
            check_validation(found.loss, step)
            loss, values = found.loss, dict(found.values)
            text += f"  validation loss {loss:.3f} ({found.bits_per_byte:.3f} bits per byte)"
        if samples and self._recipe.watch.sample_tokens:
            values["sample"] = sample(self._model, self._tokenizer, self._recipe)
            text += f"\n  {one_line(values['sample'])}"
        return Look(loss, values, text)


def _notes(data: TrainingData, validated: set[str]) -> list[str]:
    if validated:
        missing = sorted(set(data.names) - validated)
        return [
            f"{name} holds nothing out: validation is on the other data alone" for name in missing
        ]
    if any(folder.manifest.val.tokens for folder in data.folders):
        return ["no held-out token is labelled: nothing is validated"]
    return []

"""What a run looks at on its way: the loss on held-out text, and a sample of the model's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from llamita.data.training_data import TrainingData
from llamita.model import Transformer
from llamita.tokenizer.base import Tokenizer
from llamita.training.health import check_finite_state, check_validation
from llamita.training.ranks.sharding import is_sharded
from llamita.training.ranks.world import World
from llamita.training.records.observer import one_line
from llamita.training.settings.recipe import Recipe
from llamita.training.steps.parallel import share_rows
from llamita.training.steps.step import LossSum
from llamita.training.validation import held_out_question, sample, validate, validation_sets


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
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        data: TrainingData,
        recipe: Recipe,
        world: World,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._recipe = recipe
        self._device = torch.device(recipe.machine.device)
        self._world = world
        sequences = share_rows(recipe.batch, world).rows
        self._sets = validation_sets(data, recipe, sequences, world)
        self._samples = bool(recipe.watch.sample_tokens) and not is_sharded(model)
        self._question = held_out_question(data, tokenizer) if self._samples else None
        self.notes = _notes(data, {one.name for one in self._sets})
        if is_sharded(model) and recipe.watch.sample_tokens:
            self.notes.append("no samples are drawn on the way: no rank has the whole model")

    def look(self, loss_sum: LossSum, step: int, *, samples: bool) -> Look:
        """Validate, and draw a sample if `samples`, on the first rank where it has all weights.

        Raises:
            TrainingError: the weights or the loss are no numbers.
        """
        check_finite_state(self._model, [], step, self._world)
        loss, values, text = None, {}, ""
        if self._sets:
            found = validate(self._model, loss_sum, self._sets, self._device, self._world)
            check_validation(found.loss, step)
            loss, values = found.loss, dict(found.values)
            text += f"  validation loss {loss:.3f} ({found.bits_per_byte:.3f} bits per byte)"
        if samples and self._samples and self._world.is_first:
            values["sample"] = sample(self._model, self._tokenizer, self._recipe, self._question)
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

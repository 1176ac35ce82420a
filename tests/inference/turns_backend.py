"""A backend that says one script after the other: the n-th answer is the n-th script."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llamita.config import ModelConfig
from llamita.inference.engine import Engine
from llamita.inference.lm import LM
from llamita.tokenizer.base import Tokenizer
from tests.inference.conftest import make_model


class TurnsBackend:
    """Every prompt that is read begins the next script; after its end come its last ids again.

    prompts: the ids of each prompt, as they were read.
    """

    slots = capacity = weights_version = 0
    max_segment = 100_000

    def __init__(self, scripts: Sequence[Sequence[int]], config: ModelConfig) -> None:
        self.config = config
        self.scripts = [list(script) for script in scripts]
        self.prompts: list[list[int]] = []
        self._row: list[int] = []
        self._is_reading = False

    def slot_bytes(self, capacity):
        return 1

    def resize(self, slots, capacity):
        self.slots, self.capacity = slots, capacity

    def prefill(self, segments):
        [segment] = segments
        self._row[segment.start :] = segment.token_ids
        self._is_reading = True
        if not segment.num_logits:
            return np.zeros((0, self.config.vocab_size), np.float32)
        return self._logits()

    def decode(self, slots, token_ids, positions):
        self._row[positions[0] :] = token_ids
        return self._logits()

    def reusable(self, written, shared):
        return shared

    def copy(self, source, target, length):
        pass

    def _logits(self):
        if self._is_reading:
            self.prompts.append(list(self._row))
            self._is_reading = False
        script = self.scripts[min(len(self.prompts), len(self.scripts)) - 1]
        place = min(len(self._row) - len(self.prompts[-1]), len(script) - 1)
        logits = np.zeros((1, self.config.vocab_size), np.float32)
        logits[0, script[place]] = 9.0
        return logits


def turns_lm(scripts: Sequence[Sequence[int]], tokenizer: Tokenizer, context: int = 4000) -> LM:
    """An LM whose answers are these ids, one after the other; `lm.engine.backend` has them."""
    model = make_model(vocab_size=tokenizer.vocab_size, max_position_embeddings=context)
    lm = LM(model, tokenizer)
    lm._engine = Engine(TurnsBackend(scripts, lm.config), tokenizer)
    return lm

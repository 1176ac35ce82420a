"""llamita at one setting, and contests of several: what `generate.py` measures with."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamita.inference.lm import LM

PREFILL_TOKENS = 512
WARM_UPS = 2
"""Runs of each contestant, on either side, before the first that counts."""
TRIALS = 2

Measure = Callable[[], float]


class Ours:
    """llamita's engine at one setting."""

    def __init__(self, lm: LM, compiled: bool) -> None:
        from llamita.inference.engine import Engine
        from llamita.inference.torch_backend import TorchBackend

        self.engine = Engine(TorchBackend(lm.model, compile=compiled), lm.tokenizer)
        self._calls = itertools.count()
        self._warmed: set[str] = set()

    def generate(
        self, prompt: list[int], new_tokens: int, **settings: Any
    ) -> tuple[list[int], float, float]:
        """The tokens, seconds to the first of them, tokens a second after it."""
        from llamita.inference.params import SamplingParams
        from llamita.inference.request import Request

        settings = {"temperature": 0.0, "max_tokens": new_tokens, **settings}
        request = Request(prompt, SamplingParams.from_settings(settings))
        tokens, times = [], [time.perf_counter()]
        for event in self.engine.run([request]):
            if event.token_id is not None:
                tokens.append(event.token_id)
                times.append(time.perf_counter())
        rate = (len(tokens) - 1) / (times[-1] - times[1]) if len(tokens) > 1 else 0.0
        return tokens, times[1] - times[0], rate

    def decode_rate(self, prompt: list[int], new_tokens: int) -> float:
        """Tokens a second after the first."""
        self._warm("decode", lambda: self.decode_rate(prompt, new_tokens))
        return self.generate(prompt, new_tokens + 1)[2]

    def prefill_rate(self, text: list[int]) -> float:
        """Of another stretch of the text at each call, so that none is remembered."""
        self._warm("prefill", lambda: self.prefill_rate(text))
        start = 61 * next(self._calls) % (len(text) - PREFILL_TOKENS)
        return PREFILL_TOKENS / self.generate(text[start : start + PREFILL_TOKENS], 1)[1]

    def _warm(self, kind: str, measure: Measure) -> None:
        """Run before the first time that counts: threads, caches, compiling."""
        if kind not in self._warmed:
            self._warmed.add(kind)
            for _ in range(WARM_UPS):
                measure()


def take_turns(sides: list[dict[str, Measure]], rounds: int) -> list[dict[str, list[float]]]:
    """Rates of each side's settings: all are tried, and the two best of either go on in turns."""
    trials: list[dict[str, float]] = []
    for side in sides:
        trials.append({})
        for name, measure in side.items():
            trials[-1][name] = median(measure() for _ in range(TRIALS))
            say(f"tried {name}: {trials[-1][name]:.1f} tokens/s")
    found: list[dict[str, list[float]]] = [{} for _ in sides]
    for _ in range(rounds):
        for side, trial, rates in zip(sides, trials, found, strict=True):
            for name in sorted(trial, key=lambda name: -trial[name])[:2]:
                rates.setdefault(name, []).append(side[name]())
    return [
        {**{name: [rate] for name, rate in trial.items()}, **rates}
        for trial, rates in zip(trials, found, strict=True)
    ]


def best(rates: dict[str, list[float]]) -> tuple[str, float]:
    name = max(rates, key=lambda name: (len(rates[name]) > 1, median(rates[name])))
    return name, median(rates[name])


def medians(rates: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(median(found), 2) for name, found in rates.items()}


def rounded(values: list[float]) -> list[float]:
    return [round(value, 3) for value in values]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""How fast a backend reads prompts and generates: the measurements behind `llamita bench`.

A decode step reads every weight and the keys and values of all that came before, and computes
little: how fast memory can be read is its limit. The share of that limit says how much there is
left to gain on this machine, whatever the machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from llamita.config import ModelConfig
from llamita.errors import ConfigError
from llamita.inference.backend import Backend, Logits, Segment
from llamita.inference.engine import IDLE_CHUNKS, PREFILL_CHUNK
from llamita.inference.stopping import context_length

if TYPE_CHECKING:
    from llamita.inference.lm import LM

DEFAULT_PROMPT_TOKENS = (128, 512)
DEFAULT_BATCH_SIZES = (1, 4)
DEFAULT_NEW_TOKENS = 32
DEFAULT_REPEATS = 3
HEADLINE_PROMPT_TOKENS = 512
MOST_ROWS = 1024

_PASS_TOKENS = IDLE_CHUNKS * PREFILL_CHUNK  # as the engine where no text is under way
_LONG = 10.0  # seconds of one setting, after which it is not repeated
_TIMED_TOKENS = 2048  # beyond so many, a batch's further rows are copied: they read no faster


@dataclass(frozen=True)
class SpeedRun:
    """One prompt length and batch size; medians of the repeats.

    prefill_tok_s: prompt tokens a second. decode_tok_s: new tokens a second of all rows together.
    ttft_s: seconds until all rows have their first token, having come at once: measured from the
        tokens of the prompt to the token drawn, greedily; where most rows were copied and not read
        (batches of many tokens), what reading all would take.
    """

    prompt_tokens: int
    batch_size: int
    new_tokens: int
    prefill_tok_s: float
    decode_tok_s: float
    ttft_s: float


def fitting_lengths(config: ModelConfig, new_tokens: int) -> list[int]:
    """The default prompt lengths, those too long for the context cut to what it holds."""
    room = context_length(config) - new_tokens
    return sorted({min(length, room) for length in DEFAULT_PROMPT_TOKENS if room > 0})


def check_sizes(
    config: ModelConfig,
    prompt_tokens: Sequence[int],
    batch_sizes: Sequence[int],
    new_tokens: int,
    repeats: int,
) -> None:
    """Raise ConfigError, by name and value, for what cannot be measured."""
    context = context_length(config)
    if not 1 <= new_tokens < context:
        raise ConfigError(
            f"new_tokens is {new_tokens}; it must be from 1 to {context - 1}, for the model's "
            f"context holds {context} tokens."
        )
    if repeats < 1:
        raise ConfigError(f"repeats is {repeats}; it must be 1 or more.")
    if not prompt_tokens:
        raise ConfigError("prompt_tokens is empty.", hint="Name one length or more.")
    for length in prompt_tokens:
        if not 1 <= length <= context - new_tokens:
            raise ConfigError(
                f"prompt_tokens has {length}; it must be from 1 to {context - new_tokens}, for "
                f"the model's context holds {context} tokens and {new_tokens} follow the prompt."
            )
    if not batch_sizes:
        raise ConfigError("batch_sizes is empty.", hint="Name one size or more.")
    for size in batch_sizes:
        if not 1 <= size <= MOST_ROWS:
            raise ConfigError(f"batch_sizes has {size}; it must be from 1 to {MOST_ROWS}.")


def measure_speed(
    backend: Backend,
    *,
    prompt_tokens: Sequence[int],
    batch_sizes: Sequence[int] = DEFAULT_BATCH_SIZES,
    new_tokens: int = DEFAULT_NEW_TOKENS,
    repeats: int = DEFAULT_REPEATS,
    progress: Callable[[int], None] = lambda tokens: None,
) -> list[SpeedRun]:
    """Every length with every batch size, in order.

    repeats: how often each is measured after a round of warming up; less often where one takes
    seconds. progress: told how many tokens more are done, of `work` in all.

    Raises:
        ConfigError: as `check_sizes`.
    """
    check_sizes(backend.config, prompt_tokens, batch_sizes, new_tokens, repeats)
    # What is compiled for one size of cache is not compiled again for another.
    backend.resize(max(batch_sizes), max(prompt_tokens) + new_tokens)
    return [
        _Setting(backend, length, size, new_tokens, progress).measure(repeats)
        for length in prompt_tokens
        for size in batch_sizes
    ]


def work(
    prompt_tokens: Sequence[int], batch_sizes: Sequence[int], new_tokens: int, repeats: int
) -> int:
    """How many tokens `measure_speed` reads, counting a decode step as one."""
    return sum(
        (repeats + 1) * (length * _timed_rows(length, size) + new_tokens)
        for length in prompt_tokens
        for size in batch_sizes
    )


def headline(runs: Sequence[SpeedRun]) -> SpeedRun:
    """The run that stands for all: the smallest batch after 512 tokens, or the nearest to it."""
    smallest = min(run.batch_size for run in runs)
    return min(
        (run for run in runs if run.batch_size == smallest),
        key=lambda run: (
            abs(np.log(run.prompt_tokens / HEADLINE_PROMPT_TOKENS)),
            run.prompt_tokens,
        ),
    )


def bytes_per_step(run: SpeedRun, backend: Backend, weight_bytes_read: int) -> int:
    """What a decode step of this run reads of memory, halfway through its tokens.

    weight_bytes_read: weights that a step reads: all but an embedding table that is not also the
    head, of which a row is read for each token.
    """
    seen = run.prompt_tokens + (run.new_tokens + 1) // 2
    seen = min(seen, backend.config.sliding_window or seen)
    return weight_bytes_read + run.batch_size * backend.slot_bytes(seen)


def roofline_share(
    run: SpeedRun, backend: Backend, weight_bytes_read: int, bandwidth: float
) -> float:
    """Decode steps a second over those with which memory would be read at `bandwidth` bytes/s."""
    steps_per_second = run.decode_tok_s / run.batch_size
    return steps_per_second * bytes_per_step(run, backend, weight_bytes_read) / bandwidth


def weight_bytes(lm: LM) -> tuple[int, int]:
    """Bytes of the model's weights, and of those that a decode step reads."""
    head, embedding = lm.model.lm_head.weight, lm.model.model.embed_tokens.weight
    whole = sum(weight.numel() * weight.element_size() for weight in lm.model.parameters())
    rows_alone = 0 if head is embedding else embedding.numel() * embedding.element_size()
    return whole, whole - rows_alone


def summary(
    runs: Sequence[SpeedRun], lm: LM, *, bandwidth: float, peak_memory: int | None, threads: int
) -> dict[str, Any]:
    """What `llamita bench --json` prints; the figures at the top are those of `headline`.

    bandwidth: bytes a second at which memory is read. peak_memory: bytes, if they are known.
    """
    best = headline(runs)
    whole, read = weight_bytes(lm)
    return {
        "prefill_tok_s": best.prefill_tok_s,
        "decode_tok_s": best.decode_tok_s,
        "ttft_s": best.ttft_s,
        "peak_memory_mb": None if peak_memory is None else peak_memory / 1e6,
        "weight_bytes": whole,
        "bandwidth_gb_s": bandwidth / 1e9,
        "roofline_share": roofline_share(best, lm.engine.backend, read, bandwidth),
        "prompt_tokens": best.prompt_tokens,
        "batch_size": best.batch_size,
        "device": str(lm.device),
        "dtype": str(lm.model.lm_head.weight.dtype).removeprefix("torch."),
        "threads": threads,
        "runs": [asdict(run) for run in runs],
    }


def _timed_rows(length: int, size: int) -> int:
    return max(1, min(size, _TIMED_TOKENS // length))


class _Setting:
    """One prompt length and batch size on one backend."""

    def __init__(
        self,
        backend: Backend,
        length: int,
        size: int,
        new_tokens: int,
        progress: Callable[[int], None],
    ) -> None:
        self.backend, self.length, self.size, self.new_tokens = backend, length, size, new_tokens
        self.progress = progress
        draw = random.Random(0)  # what the tokens are makes no difference to how long they take
        vocab_size = backend.config.vocab_size
        self.prompts = [[draw.randrange(vocab_size) for _ in range(length)] for _ in range(size)]

    def measure(self, repeats: int) -> SpeedRun:
        rows = _timed_rows(self.length, self.size)
        prefill, decode = [], []
        start = time.perf_counter()
        for done in range(repeats + 1):
            if done > 1 and time.perf_counter() - start > _LONG:
                self.progress((repeats + 1 - done) * (rows * self.length + self.new_tokens))
                break
            seconds, tokens = self._prefill(rows)
            for row in range(rows, self.size):
                self.backend.copy(row % rows, row, self.length)
            prefill.append(seconds)
            decode.append(self._decode([tokens[row % rows] for row in range(self.size)]))
        # The first round warms up: caches, threads, whatever is compiled when it is first met.
        read = median(prefill[1:])
        return SpeedRun(
            prompt_tokens=self.length,
            batch_size=self.size,
            new_tokens=self.new_tokens,
            prefill_tok_s=rows * self.length / read,
            decode_tok_s=self.size * self.new_tokens / median(decode[1:]),
            ttft_s=read * self.size / rows,
        )

    def _prefill(self, rows: int) -> tuple[float, list[int]]:
        """Seconds to read the first `rows` prompts, in passes as the engine's; the next tokens."""
        tokens: list[int] = []
        segments: list[Segment] = []
        room = _PASS_TOKENS
        start = time.perf_counter()
        for slot in range(rows):
            place = 0
            while place < self.length:
                count = min(self.length - place, room, self.backend.max_segment)
                ids = self.prompts[slot][place : place + count]
                place += count
                room -= count
                is_last = place == self.length
                segments.append(Segment(slot, ids, place - count, int(is_last), self.length))
                # One pass reads a slot once at most.
                if room == 0 or not is_last or slot == rows - 1:
                    tokens += _best(self.backend.prefill(segments))
                    segments, room = [], _PASS_TOKENS
        seconds = time.perf_counter() - start
        self.progress(rows * self.length)
        return seconds, tokens

    def _decode(self, tokens: list[int]) -> float:
        """Seconds to generate `new_tokens` more for every row."""
        slots = range(self.size)
        start = time.perf_counter()
        for place in range(self.length, self.length + self.new_tokens):
            tokens = _best(self.backend.decode(slots, tokens, [place] * self.size))
        seconds = time.perf_counter() - start
        self.progress(self.new_tokens)
        return seconds


def _best(logits: Logits) -> list[int]:
    """The likeliest token of each row of logits [N, V]."""
    tokens: list[int] = logits.argmax(axis=-1).tolist()
    return tokens

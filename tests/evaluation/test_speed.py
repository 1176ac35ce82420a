"""What `measure_speed` asks of a backend and makes of its answers; nothing here is timed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from llamita.config import ModelConfig
from llamita.errors import ConfigError
from llamita.evaluation import speed
from llamita.evaluation.machine import available_cores, read_bandwidth
from llamita.evaluation.speed import (
    SpeedRun,
    bytes_per_step,
    check_sizes,
    fitting_lengths,
    headline,
    measure_speed,
    roofline_share,
    work,
)
from llamita.inference.backend import Logits, Segment
from llamita.inference.engine import Engine
from llamita.inference.params import SamplingParams
from llamita.inference.request import Request

CONFIG = ModelConfig(50, 8, 12, 1, 2, max_position_embeddings=4096)
RUN = SpeedRun(512, 1, 32, 1000.0, 10.0, 0.5)


class CountingBackend:
    """Holds what it has read, refuses what a real one could not read, and says token 7."""

    weights_version = 0

    def __init__(self, config: ModelConfig = CONFIG, max_segment: int = 4096) -> None:
        self.config = config
        self.max_segment = max_segment
        self.slots = self.capacity = 0
        self.held: list[int] = []
        self.passes: list[int] = []
        self.prefilled = self.decoded = self.copied = 0

    def slot_bytes(self, capacity: int) -> int:
        return 100 * capacity

    def resize(self, slots: int, capacity: int) -> None:
        self.slots, self.capacity = slots, capacity
        self.held = [0] * slots

    def prefill(self, segments: Sequence[Segment]) -> Logits:
        assert len({segment.slot for segment in segments}) == len(segments)
        for segment in segments:
            assert 0 < len(segment.token_ids) <= self.max_segment
            assert all(0 <= token < self.config.vocab_size for token in segment.token_ids)
            assert segment.start in (0, self.held[segment.slot])
            self.held[segment.slot] = segment.start + len(segment.token_ids)
            is_last = self.held[segment.slot] == segment.row_length
            assert segment.num_logits == int(is_last)
        self.passes.append(sum(len(segment.token_ids) for segment in segments))
        self.prefilled += self.passes[-1]
        return self._answer(sum(segment.num_logits for segment in segments))

    def decode(
        self, slots: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]
    ) -> Logits:
        assert list(token_ids) == [7] * len(slots)
        for slot, position in zip(slots, positions, strict=True):
            assert position == self.held[slot] < self.capacity
            self.held[slot] += 1
        self.decoded += 1
        return self._answer(len(slots))

    def reusable(self, written: int, shared: int) -> int:
        return 0

    def copy(self, source: int, target: int, length: int) -> None:
        self.held[target] = length
        self.copied += 1

    def _answer(self, rows: int) -> Logits:
        logits = np.zeros((rows, self.config.vocab_size), dtype=np.float32)
        logits[:, 7] = 1.0
        return logits


@pytest.mark.parametrize("max_segment", [3, 100, 4096])
def test_every_length_is_measured_with_every_batch_size(max_segment: int) -> None:
    backend = CountingBackend(max_segment=max_segment)
    done: list[int] = []
    runs = measure_speed(
        backend,
        prompt_tokens=[5, 700],
        batch_sizes=[1, 3],
        new_tokens=4,
        repeats=2,
        progress=done.append,
    )
    assert [(run.prompt_tokens, run.batch_size) for run in runs] == [
        (5, 1),
        (5, 3),
        (700, 1),
        (700, 3),
    ]
    for run in runs:
        assert run.new_tokens == 4
        assert min(run.prefill_tok_s, run.decode_tok_s, run.ttft_s) > 0
        total = run.prompt_tokens * run.batch_size
        assert run.ttft_s * run.prefill_tok_s == pytest.approx(total)
    assert (backend.slots, backend.capacity) == (3, 704)
    assert backend.decoded == 4 * 3 * 4
    assert max(backend.passes) <= 512
    assert sum(done) == work([5, 700], [1, 3], 4, 2) == backend.prefilled + backend.decoded


def test_further_rows_of_a_long_batch_are_copied_and_not_read() -> None:
    backend = CountingBackend()
    measure_speed(backend, prompt_tokens=[1000], batch_sizes=[16], new_tokens=1, repeats=1)
    assert backend.prefilled == 2 * 2 * 1000
    assert backend.copied == 2 * 14


def test_the_default_lengths_are_cut_to_the_context() -> None:
    assert fitting_lengths(CONFIG, 32) == [128, 512]
    assert fitting_lengths(replace(CONFIG, max_position_embeddings=300), 32) == [128, 268]
    assert fitting_lengths(replace(CONFIG, max_position_embeddings=16), 8) == [8]


def test_the_headline_is_the_smallest_batch_nearest_to_512_tokens() -> None:
    runs = [
        replace(RUN, prompt_tokens=length, batch_size=size)
        for length in (100, 600, 4000)
        for size in (4, 2)
    ]
    assert headline(runs) == replace(RUN, prompt_tokens=600, batch_size=2)


def test_a_step_reads_the_weights_and_what_came_before() -> None:
    backend = CountingBackend()
    assert bytes_per_step(RUN, backend, 5000) == 5000 + 528 * 100
    assert bytes_per_step(replace(RUN, batch_size=4), backend, 5000) == 5000 + 4 * 528 * 100
    # At so many bytes a second, ten steps of one row are all that can be.
    assert roofline_share(RUN, backend, 5000, 10 * (5000 + 52800)) == pytest.approx(1)
    assert roofline_share(replace(RUN, decode_tok_s=5), backend, 5000, 578000) == pytest.approx(0.5)
    four = replace(RUN, batch_size=4)
    assert roofline_share(four, backend, 5000, 2.5 * 216200) == pytest.approx(1)


def test_a_step_under_a_sliding_window_reads_the_window() -> None:
    backend = CountingBackend(replace(CONFIG, sliding_window=64))
    assert bytes_per_step(RUN, backend, 0) == 64 * 100


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt_tokens": [8, 0]}, "prompt_tokens has 0"),
        ({"prompt_tokens": [4065]}, "prompt_tokens has 4065"),
        ({"prompt_tokens": []}, "prompt_tokens is empty"),
        ({"batch_sizes": [1, -2]}, "batch_sizes has -2"),
        ({"batch_sizes": [1025]}, "batch_sizes has 1025"),
        ({"batch_sizes": []}, "batch_sizes is empty"),
        ({"new_tokens": 0}, "new_tokens is 0"),
        ({"new_tokens": 4096}, "new_tokens is 4096"),
        ({"repeats": 0}, "repeats is 0"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name_and_value(
    changes: dict[str, object], words: str
) -> None:
    sizes = {"prompt_tokens": [8], "batch_sizes": [1], "new_tokens": 32, "repeats": 1} | changes
    with pytest.raises(ConfigError, match=words):
        check_sizes(CONFIG, **sizes)  # type: ignore[arg-type]


def test_what_takes_long_is_measured_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_LONG", -1.0)
    backend, done = CountingBackend(), list[int]()
    measure_speed(
        backend,
        prompt_tokens=[6, 9],
        batch_sizes=[2],
        new_tokens=4,
        repeats=5,
        progress=done.append,
    )
    assert backend.decoded == 2 * (1 + 1) * 4  # the warming up and one that counts
    assert sum(done) == work([6, 9], [2], 4, 5)


def test_passes_are_as_large_as_the_engines() -> None:
    backend = CountingBackend()
    measure_speed(backend, prompt_tokens=[2000], batch_sizes=[1], new_tokens=1, repeats=1)
    assert backend.passes[:4] == [512, 512, 512, 464]
    asked = CountingBackend()
    prompt = Request([3] * 2000, SamplingParams(max_tokens=1, temperature=0))
    list(Engine(asked).run([prompt]))
    assert asked.passes == [512, 512, 512, 464]


def test_the_machine_tells_its_read_rate() -> None:
    assert available_cores() >= 1
    assert read_bandwidth(2, repeats=2, size=1 << 20) > 0


def test_the_peak_of_memory_is_what_was_held_at_most() -> None:
    code = """
import numpy as np
from pathlib import Path
from llamita.evaluation import machine
before = machine.peak_memory()
held = np.ones(64 << 20, dtype=np.uint8)
with_it = machine.peak_memory()
del held
after = machine.peak_memory()
machine._STATUS = Path("no-such-file")  # then what every Unix tells
print(before, with_it, after, machine.peak_memory())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, with_it, after, other = map(int, done.stdout.split())
    assert 60 << 20 <= with_it - before <= 80 << 20
    assert after == pytest.approx(with_it, rel=0.02)
    assert other >= 0.9 * after  # Linux counts what the parent held before this began

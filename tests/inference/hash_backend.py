"""A backend whose logits are a hash of what a slot holds: whoever mixes slots up is found out."""

from __future__ import annotations

import zlib

import numpy as np

from llamita.config import ModelConfig
from llamita.inference.params import SamplingParams
from llamita.inference.request import Request


class HashBackend:
    """Logits after a token depend on every token of its row from position 0 and on nothing else.

    Each slot is a dictionary from position to token. Reading a gap is an AssertionError. A rolling
    one forgets all but the last `window + max_segment` positions, and hashes `window` of them.
    """

    def __init__(self, vocab_size=40, context=64, window=None, max_segment=16, shares=True):
        self.config = ModelConfig(
            vocab_size=vocab_size,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            max_position_embeddings=context,
        )
        self.window = window
        self.max_segment = max_segment
        self.shares = shares
        self.rows: list[dict[int, int]] = []
        self.capacity = 0
        self.weights_version = 0
        self.passes: list[tuple[str, list[tuple[int, int, int]]]] = []
        self.copies: list[tuple[int, int, int]] = []

    @property
    def slots(self):
        return len(self.rows)

    def slot_bytes(self, capacity):
        return capacity

    def resize(self, slots, capacity):
        self.capacity = capacity
        self.rows = [{p: t for p, t in row.items() if p < capacity} for row in self.rows]
        del self.rows[slots:]
        self.rows += [{} for _ in range(slots - len(self.rows))]

    def prefill(self, segments):
        assert len({part.slot for part in segments}) == len(segments)
        self.passes.append(
            ("prefill", [(part.slot, part.start, len(part.token_ids)) for part in segments])
        )
        logits = [np.empty((0, self.config.vocab_size), np.float32)]
        for part in segments:
            assert 1 <= len(part.token_ids) <= self.max_segment
            assert part.num_logits <= len(part.token_ids)
            rows = [
                self._read(part.slot, token_id, part.start + place)
                for place, token_id in enumerate(part.token_ids)
            ]
            logits.append(np.stack(rows)[len(rows) - part.num_logits :])
        return np.concatenate(logits)

    def decode(self, slots, token_ids, positions):
        self.passes.append(("decode", [(s, p, 1) for s, p in zip(slots, positions, strict=True)]))
        return np.stack([self._read(*x) for x in zip(slots, token_ids, positions, strict=True)])

    def reusable(self, written, shared):
        if not self.shares:
            return 0
        if self.window is None or max(0, shared - self.window) >= written - self._size:
            return shared
        return 0

    def copy(self, source, target, length):
        self.copies.append((source, target, length))
        self.rows[target] = {p: t for p, t in self.rows[source].items() if p < length}

    @property
    def _size(self):
        return self.window + self.max_segment

    def _read(self, slot, token_id, position):
        assert position < self.capacity
        row = self.rows[slot]
        row[position] = token_id
        first = 0
        if self.window is not None:
            row.pop(position - self._size, None)
            first = max(0, position - self.window)
        return self.logits([row[place] for place in range(first, position + 1)])

    def logits(self, tokens):
        seed = zlib.crc32(np.asarray(tokens, dtype=np.int32).tobytes())
        return np.random.default_rng(seed).normal(0, 2, self.config.vocab_size).astype(np.float32)

    def greedy(self, prompt, count):
        """What a row gives, by the definition."""
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(
                int(
                    self.logits(
                        tokens[-(self.window or 0) - 1 :] if self.window else tokens
                    ).argmax()
                )
            )
        return tokens[len(prompt) :]


def request(prompt, row=0, stops=(), **settings):
    """A request, greedy unless it says otherwise."""
    return Request(
        prompt, SamplingParams(**{"temperature": 0.0, **settings}), frozenset(stops), row
    )


def run(engine, requests):
    """Token ids and the last event of each row."""
    tokens, last = {r.row: [] for r in requests}, {}
    for event in engine.run(requests):
        if event.token_id is not None:
            tokens[event.row].append(event.token_id)
        if event.is_last:
            last[event.row] = event
    assert set(last) == set(tokens)
    return tokens, last

"""What a run gets out of its machine: tokens a second, share of the peak, memory."""

from __future__ import annotations

from typing import Any

from llamita.config import ModelConfig
from llamita.evaluation.machine import matrix_peak, peak_memory

NEWTON_SCHULZ_STEPS = 5
"""Of Muon's iteration, as PyTorch's own has it."""


def training_flops(config: ModelConfig, context_length: int) -> float:
    """Floating-point operations that training takes for a token, forward and backward.

    6 for each parameter, the embedding table once as the head (looking a row up is free), and
    causal attention: each token meets half of the context on average, or what a sliding window
    leaves of that. As the appendix of PaLM counts (arXiv:2204.02311), but for the causal half.
    """
    parameters = config.count_parameters()
    if not config.tie_word_embeddings:
        parameters -= config.vocab_size * config.hidden_size
    window = min(config.sliding_window or context_length, context_length)
    keys = window - window**2 / (2 * context_length)
    queries = config.num_attention_heads * config.head_dim
    return 6.0 * parameters + 12.0 * config.num_hidden_layers * queries * keys


def muon_flops(config: ModelConfig) -> float:
    """Operations of Muon's iteration over all matrices of the layers, once a step: for m <= n,
    2 m² n, 2 m³ and 2 m² n."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    shapes = 2 * [(hidden, queries)] + 2 * [(hidden, keys)] + 3 * [(hidden, inner)]
    layer = sum(4.0 * min(shape) ** 2 * max(shape) + 2.0 * min(shape) ** 3 for shape in shapes)
    return NEWTON_SCHULZ_STEPS * config.num_hidden_layers * layer


class Meter:
    """Adds steps up and tells, for those since it was last asked, what they took."""

    def __init__(self, config: ModelConfig, context_length: int) -> None:
        self.flops_per_token = training_flops(config, context_length)
        self.peak_flops: float | None = None
        self._device = "cpu"
        self._tokens = 0
        self._seconds = 0.0

    def start(self, precision: str, device: str) -> None:
        """Measure the peak of matrix products, once, and count from here on.

        Not on devices whose products nothing here waits for.
        """
        self._device = device
        if device.startswith(("cpu", "cuda")):
            self.peak_flops = matrix_peak(precision, device)
        self._tokens, self._seconds = 0, 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Count a step."""
        self._tokens += tokens
        self._seconds += seconds

    def take(self) -> dict[str, Any]:
        """Figures of the steps since the last call; memory is the most held at once so far."""
        rate = self._tokens / max(self._seconds, 1e-9)
        self._tokens, self._seconds = 0, 0.0
        values: dict[str, Any] = {"tokens_per_second": round(rate, 1)}
        if self.peak_flops:
            values["mfu"] = round(rate * self.flops_per_token / self.peak_flops, 4)
        resident = peak_memory()
        if resident is not None:
            values["peak_memory_mb"] = round(resident / 1e6, 1)
        if self._device.startswith("cuda"):
            allotted = peak_memory(self._device)
            values["cuda_peak_memory_mb"] = round((allotted or 0) / 1e6, 1)
        return values

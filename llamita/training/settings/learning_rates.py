"""The learning rate that fits a model, a batch and an amount of text.

Step Law (arXiv:2503.04715) found, over 3,700 runs of AdamW, the best peak rate and batch for N
parameters outside the tables and D tokens of training:

    rate = 1.79 N^-0.713 D^0.307        batch = 0.58 D^0.571 tokens

Away from that batch the rate goes with the square root of the batch (arXiv:2205.10287). D all but
cancels out: a run may be cut short or lengthened without another rate.
"""

from __future__ import annotations

import math

from llamita.config import ModelConfig

# Muon's best rate over AdamW's, at updates of the same size: docs/experiments.md.
_MUON = 2.0
# A trained model forgets at the rate that a fresh one needs.
_TRAINED = 0.1
_HIGHEST = 0.01  # docs/experiments.md, for small models


def peak_learning_rate(
    config: ModelConfig,
    steps: int,
    tokens_per_step: int,
    optimizer: str,
    is_trained: bool = False,
) -> float:
    """The peak of a run's schedule, to two digits.

    optimizer: "adamw" or "muon". is_trained: the run begins with a model that was trained before.
    """
    tokens = steps * tokens_per_step
    rate = 1.79 * inner_parameters(config) ** -0.713 * tokens**0.307
    rate *= math.sqrt(tokens_per_step / best_batch(tokens))
    rate *= _MUON if optimizer == "muon" else 1.0
    rate = min(rate, _HIGHEST) * (_TRAINED if is_trained else 1.0)
    return float(f"{rate:.2g}")


def fine_tuning_rate(config: ModelConfig, *, adapters: bool) -> float:
    """The peak rate for learning chats with AdamW, to two digits.

    Thinking Machines swept it for Llama models (tinker cookbook, `hyperparam_utils`):
    5e-5 × (2000 / width)^0.781, and ten times as much where low-rank adapters of alpha 32 are
    trained (Schulman et al. 2025, "LoRA without regret").
    """
    rate = 5e-5 * (2000 / config.hidden_size) ** 0.781 * (10 if adapters else 1)
    return float(f"{min(rate, _HIGHEST):.2g}")


def inner_parameters(config: ModelConfig) -> int:
    """Parameters outside the tables, at least 1: what a model thinks with."""
    tables = 1 if config.tie_word_embeddings else 2
    return max(1, config.count_parameters() - tables * config.vocab_size * config.hidden_size)


def best_batch(tokens: float) -> float:
    """Step Law's batch for a run of `tokens`, in tokens."""
    return 0.58 * math.pow(tokens, 0.571)


def power_of_two(value: float) -> int:
    """The nearest by ratio, at least 1."""
    return int(2.0 ** round(math.log2(max(1.0, value))))

"""The learning rate that `auto` stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamita.config import ModelConfig, preset
from llamita.training.settings.learning_rates import peak_learning_rate

DEMO = preset("demo", 4096)


def test_at_step_laws_own_batch_it_is_step_laws_rate() -> None:
    config = preset("smollm2-135m", 49152)
    tokens = 10**9
    batch = round(0.58 * tokens**0.571)
    inner = config.count_parameters() - 49152 * config.hidden_size
    expected = 1.79 * inner**-0.713 * tokens**0.307
    found = peak_learning_rate(config, round(tokens / batch), batch, "adamw")
    assert found == pytest.approx(expected, rel=0.02)


def test_rates_that_were_found_best_by_trying() -> None:
    """docs/experiments.md: Muon on the demo's model, 219 and 391 steps of 4,096 tokens."""
    for steps in (219, 391):
        assert 0.007 <= peak_learning_rate(DEMO, steps, 4096, "muon") <= 0.012


@given(
    steps=st.integers(1, 10**6),
    tokens=st.integers(1, 10**7),
    name=st.sampled_from(["tiny", "demo", "small", "smollm2-135m", "tinyllama-1.1b"]),
)
def test_bigger_models_and_smaller_batches_learn_more_slowly(
    steps: int, tokens: int, name: str
) -> None:
    config: ModelConfig = preset(name, 4096)
    rate = peak_learning_rate(config, steps, tokens, "adamw")
    assert 0 < rate <= 0.01
    assert rate <= peak_learning_rate(config, steps, 4 * tokens, "adamw") * 1.05
    assert rate <= peak_learning_rate(config, steps, tokens, "muon")
    deeper = config.with_changes(num_hidden_layers=4 * config.num_hidden_layers)
    assert peak_learning_rate(deeper, steps, tokens, "adamw") <= rate
    assert peak_learning_rate(config, steps, tokens, "adamw", is_trained=True) < rate

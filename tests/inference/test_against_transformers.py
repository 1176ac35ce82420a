"""The peer: `transformers` draws from the same distributions and gives the same greedy tokens."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from llamita.formats.huggingface import save_model_directory
from llamita.inference.lm import LM
from llamita.inference.sampling import (
    apply_repetition_penalty,
    apply_temperature,
    keep_min_p,
    keep_top_k,
    keep_top_p,
)

LOGITS = torch.randn(4, 500, generator=torch.Generator().manual_seed(0)) * 4
SEEN = torch.randint(0, 500, (4, 60), generator=torch.Generator().manual_seed(1))


def seen_mask():
    return torch.zeros(4, 500, dtype=torch.bool).scatter_(1, SEEN, True)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            lambda x: apply_repetition_penalty(x, seen_mask(), 1.3),
            RepetitionPenaltyLogitsProcessor(1.3),
        ),
        (lambda x: apply_temperature(x, 0.7), TemperatureLogitsWarper(0.7)),
        (lambda x: keep_top_k(x, 37), TopKLogitsWarper(37)),
        (lambda x: keep_top_p(x, 0.83), TopPLogitsWarper(0.83)),
        (lambda x: keep_min_p(x, 0.04), MinPLogitsWarper(0.04)),
    ],
    ids=["repetition_penalty", "temperature", "top_k", "top_p", "min_p"],
)
def test_each_step_leaves_the_distribution_of_transformers(ours, theirs):
    expected = theirs(SEEN, LOGITS.clone()).softmax(-1)
    torch.testing.assert_close(ours(LOGITS).softmax(-1), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_greedy_tokens_are_those_of_transformers(new_model, tmp_path, penalty):
    model = new_model(eos_token_id=3)
    save_model_directory(model, tmp_path / "model")
    peer = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    prompt = [5, 6, 7, 8, 9]
    output = peer.generate(
        torch.tensor([prompt]),
        max_new_tokens=30,
        do_sample=False,
        repetition_penalty=penalty,
        pad_token_id=0,
    )
    expected = [token for token in output[0, len(prompt) :].tolist() if token != 3]
    settings = {"max_tokens": 30, "temperature": 0, "repetition_penalty": penalty}
    assert LM(model).generate(prompt, **settings).token_ids == expected

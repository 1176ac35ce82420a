"""The peer: `transformers` draws from the same distributions and gives the same greedy tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from llamita.formats.huggingface import save_model_directory
from llamita.inference.filters import keep_min_p, keep_top_k, keep_top_p, keep_typical
from llamita.inference.history import History, NGrams
from llamita.inference.lm import LM
from llamita.inference.params import SamplingParams
from llamita.inference.penalties import apply_repetition_penalty
from llamita.inference.sampling import apply_temperature

VOCAB = 500
LOGITS = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(0)) * 4
SEEN = torch.randint(0, VOCAB, (4, 60), generator=torch.Generator().manual_seed(1))


def only(keep):
    """A filter as transformers has them: what is not kept becomes minus infinity."""

    def filtered(row):
        places = keep(row)
        result = np.full_like(row, -math.inf)
        result[places] = row[places]
        return result

    return filtered


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda row: apply_temperature(row, 0.7), TemperatureLogitsWarper(0.7)),
        (only(lambda row: keep_top_k(row, 37)), TopKLogitsWarper(37)),
        (only(lambda row: keep_top_p(row, 0.83)), TopPLogitsWarper(0.83)),
        (only(lambda row: keep_min_p(row, 0.04)), MinPLogitsWarper(0.04)),
        (only(lambda row: keep_typical(row, 0.3)), TypicalLogitsWarper(0.3)),
        (only(lambda row: keep_typical(row, 0.9)), TypicalLogitsWarper(0.9)),
    ],
    ids=["temperature", "top_k", "top_p", "min_p", "typical_p", "typical_p 0.9"],
)
def test_each_step_leaves_the_distribution_of_transformers(ours, theirs):
    expected = theirs(SEEN, LOGITS.clone()).softmax(-1)
    got = torch.from_numpy(np.stack([ours(row) for row in LOGITS.numpy()])).softmax(-1)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7)


def test_the_repetition_penalty_is_that_of_transformers():
    expected = RepetitionPenaltyLogitsProcessor(1.3)(SEEN, LOGITS.clone()).numpy()
    params = SamplingParams(repetition_penalty=1.3)
    for row, seen, logits in zip(LOGITS.numpy(), SEEN.tolist(), expected, strict=True):
        ids = History(seen, params, VOCAB).seen.ids
        np.testing.assert_allclose(apply_repetition_penalty(row, ids, 1.3), logits, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_ngrams_that_may_not_repeat_are_those_of_transformers(size):
    few = torch.randint(0, 3, (8, 40), generator=torch.Generator().manual_seed(2))
    for length in (0, 1, 2, 5, 40):
        text = few[:, :length]
        expected = NoRepeatNGramLogitsProcessor(size)(text, torch.zeros(8, 3)).isinf()
        for tokens, banned in zip(text.tolist(), expected, strict=True):
            assert NGrams(size, tokens).repeating() == set(banned.nonzero()[:, 0].tolist())


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

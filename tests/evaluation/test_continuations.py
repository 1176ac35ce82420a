"""Continuations against a slow, plain reference."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llamita.errors import CheckpointError, DataError, TokenizerError
from llamita.evaluation import scoring
from llamita.evaluation.continuations import (
    Continuation,
    encode_continuations,
    score_continuations,
)


def plain(model, context, targets):
    """Token by token: the log-likelihood, and whether each token is the likeliest."""
    total, greedy = 0.0, True
    longest = model.config.max_position_embeddings
    for at, target in enumerate(targets):
        # The window of the whole: what comes later pushes the beginning out for all targets.
        start = max(0, len(context) + len(targets) - 1 - longest)
        with torch.no_grad():
            ids = torch.tensor([[*context, *targets[:at]][start:]])
            logits = model(ids)[0, -1].double()
        total += logits.log_softmax(-1)[target].item()
        greedy &= logits.argmax().item() == target
    return total, greedy


def greedy_tokens(model, context, count):
    ids = list(context)
    for _ in range(count):
        with torch.no_grad():
            ids.append(model(torch.tensor([ids]))[0, -1].argmax().item())
    return ids[len(context) :]


def test_likelihoods_are_those_of_token_by_token_reading(random_model, monkeypatch):
    model = random_model(context=12)
    draw = torch.Generator().manual_seed(0)

    def ids(count):
        return torch.randint(0, 340, (count,), generator=draw).tolist()

    shared = ids(5)
    asked = [Continuation(shared, [token]) for token in ids(4)]  # one reading, four last tokens
    asked += [Continuation(ids(a), ids(b)) for a, b in ((1, 1), (3, 7), (11, 1), (10, 9), (30, 12))]
    asked += [Continuation(shared, greedy_tokens(model, shared, 3)), Continuation(shared, [])]
    for batch_tokens in (8192, 20):
        monkeypatch.setattr(scoring, "_BATCH_TOKENS", batch_tokens)
        found = score_continuations(model, asked)
        for one, likelihood in zip(asked, found, strict=True):
            expected, greedy = plain(model, one.context, one.targets)
            assert likelihood.log_likelihood == pytest.approx(expected, abs=1e-4)
            assert likelihood.is_greedy == greedy
    assert found[-2].is_greedy
    assert found[-1] == (0.0, True)


def test_what_is_read_alike_is_read_once(random_model):
    model = random_model()
    rows = []
    model.model.embed_tokens.register_forward_hook(lambda _m, inputs, _o: rows.append(inputs[0]))
    score_continuations(model, [Continuation([1, 2, 3], [token]) for token in range(26)])
    assert [tuple(ids.shape) for ids in rows] == [(1, 3)]


def test_a_shorter_context_is_kept_to_and_longer_targets_are_refused(random_model):
    model = random_model(context=12)
    asked = Continuation([1, 2, 3, 4], [5, 6])
    [short] = score_continuations(model, [asked], context_length=3)
    expected, _ = plain(model, [3, 4], [5, 6])
    assert short.log_likelihood == pytest.approx(expected, abs=1e-5)
    with pytest.raises(DataError, match="13 tokens"):
        score_continuations(model, [Continuation([1], [2] * 13)])


def test_progress_counts_each_and_nan_is_an_error(random_model):
    model = random_model()
    done = []
    score_continuations(model, [Continuation([1], [2])] * 5, progress=done.append)
    assert sum(done) == 5
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    with pytest.raises(CheckpointError, match="NaN"):
        score_continuations(model, [Continuation([1], [2])])


def test_answers_are_cut_at_the_same_place_for_all(random_model, word_tokenizer):
    model = random_model()
    context, answers = "the red fo", ["x ran", "rtune", "o"]
    encoded = encode_continuations(word_tokenizer, model.config, context, answers)
    assert len({tuple(one.context) for one in encoded}) == 1
    for answer, one in zip(answers, encoded, strict=True):
        assert one.context[0] == word_tokenizer.separator_id
        ids = [*one.context[1:], *one.targets]
        assert ids == word_tokenizer.encode(context + answer)
    # "fox" is a token of its own, so all answers are scored from before the "fo" on.
    assert word_tokenizer.decode(encoded[0].context[1:]) == "the red"


@given(context=st.text(max_size=20), answers=st.lists(st.text(min_size=1, max_size=8), min_size=1))
def test_context_and_targets_are_always_the_whole_text(
    random_model, word_tokenizer, context, answers
):
    config = random_model().config
    try:
        encoded = encode_continuations(word_tokenizer, config, context, answers)
    except (DataError, TokenizerError):
        assert any(not answer or "\ud800" <= c <= "\udfff" for answer in answers for c in answer)
        return
    for answer, one in zip(answers, encoded, strict=True):
        assert one.targets
        ids = [*one.context[1:], *one.targets]
        assert ids == word_tokenizer.encode(context + answer)


def test_an_empty_answer_and_a_tokenizer_without_a_beginning_are_refused(
    random_model, word_tokenizer, monkeypatch
):
    config = random_model().config
    with pytest.raises(DataError, match="gives no token"):
        encode_continuations(word_tokenizer, config, "the", ["", " fox"])
    monkeypatch.setattr(word_tokenizer, "eos_token_id", None)
    monkeypatch.setattr(word_tokenizer, "bos_token_id", None)
    with pytest.raises(TokenizerError, match="beginning"):
        encode_continuations(word_tokenizer, config, "the", [" fox"])

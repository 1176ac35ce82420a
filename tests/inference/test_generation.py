"""Batches, caches, ends of text and of context: each prompt gets what it would get alone."""

from __future__ import annotations

import pytest
import torch

from llamita.errors import GenerationError
from llamita.inference.engine import Engine
from llamita.inference.lm import LM
from llamita.inference.torch_backend import TorchBackend

PROMPTS = [[1], [5, 6, 7, 8, 9, 10, 11], [200, 3], [4, 4, 4, 4], [99, 98, 97, 96, 95, 94, 93, 92]]
SAMPLED = {"temperature": 1.0, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "seed": 11}
MODELS = {
    "plain": {},
    "sliding window": {"sliding_window": 5},
    "dynamic scaling": {
        "max_position_embeddings": 6,
        "rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
    },
}


def without_cache(model, prompt, count):
    """Greedy decoding the slow way: read everything again for each token."""
    ids = list(prompt)
    for _ in range(count):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


def test_greedy_tokens_equal_decoding_without_a_cache(model):
    lm = LM(model)
    for prompt in PROMPTS:
        result = lm.generate(prompt, max_tokens=20, temperature=0, stop_token_ids=[])
        assert result.token_ids == without_cache(model, prompt, 20)


@pytest.mark.parametrize("settings", [{"temperature": 0}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("penalty", [1.0, 1.5])
@pytest.mark.parametrize("kind", MODELS)
def test_a_ragged_batch_gives_each_prompt_what_it_gets_alone(new_model, kind, settings, penalty):
    lm = LM(new_model(**MODELS[kind]))
    settings = {**settings, "repetition_penalty": penalty, "max_tokens": 15, "stop_token_ids": []}
    batch = lm.generate(PROMPTS, **settings)
    assert batch == [lm.generate(prompt, **settings) for prompt in PROMPTS]
    assert len({tuple(result.token_ids) for result in batch}) == len(PROMPTS)


@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_rows_that_finish_early_do_not_change_the_others(model, penalty):
    lm = LM(model)
    settings = {**SAMPLED, "max_tokens": 30, "repetition_penalty": penalty}
    alone = [lm.generate(p, **settings, stop_token_ids=[]).token_ids for p in PROMPTS]
    stops = [tokens[3 * row] for row, tokens in enumerate(alone[:-1])]
    batch = lm.generate(PROMPTS, **settings, stop_token_ids=stops)
    for full, result in zip(alone, batch, strict=True):
        end = next((i for i, token in enumerate(full) if token in stops), len(full))
        assert result.token_ids == full[:end]
        assert result.finish_reason == ("stop" if end < len(full) else "length")
    assert len({len(result.token_ids) for result in batch}) >= 3


def test_prompts_that_do_not_fit_one_batch_wait_their_turn(model):
    settings = {**SAMPLED, "max_tokens": 6}
    together = LM(model).generate(PROMPTS, **settings)
    lm = LM(model)
    lm._engine = Engine(TorchBackend(model), max_slots=2)
    assert lm.generate(PROMPTS, **settings) == together
    assert lm.engine.backend.slots == 2


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_prefill_in_chunks_changes_nothing(model, chunk):
    whole = LM(model).generate(PROMPTS, **SAMPLED, max_tokens=8)
    lm = LM(model)
    lm._engine = Engine(TorchBackend(model), prefill_chunk=chunk)
    assert lm.generate(PROMPTS, **SAMPLED, max_tokens=8) == whole


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others(lm):
    first, again = (lm.generate("a", seed=3, temperature=1, max_tokens=12) for _ in range(2))
    other = lm.generate("a", seed=4, temperature=1, max_tokens=12)
    assert first == again
    assert first.token_ids != other.token_ids


def test_the_repetition_penalty_counts_the_prompt_and_each_row_for_itself(scripted):
    lm = scripted("ab")
    # The script's "a" has logit 9, all others 0: a penalty cannot raise another above it, so seen
    # tokens are told by their probability: at 9 / 1000 the choice is uniform.
    free, seen = lm.generate(
        [list(b"?"), list(b"a")], max_tokens=1, temperature=1, seed=0, repetition_penalty=1000
    )
    assert free.text == "a"
    assert seen.text != "a"


@pytest.mark.parametrize("training", [True, False])
def test_generating_leaves_every_module_in_its_mode(new_model, tokenizer, training):
    model = new_model(residual_dropout=0.5)
    model.train(training)
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    lm = LM(model, tokenizer)
    expected = lm.generate("abc", temperature=0, max_tokens=8).text
    pieces = []
    for piece in lm.stream("abc", temperature=0, max_tokens=8):
        pieces.append(piece)
        assert [module.training for module in model.modules()] == modes
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
    assert "".join(pieces) == expected
    lm.logits([[1, 2]])
    lm.loss([[1, 2]])
    assert [module.training for module in model.modules()] == modes


def test_an_error_in_the_model_leaves_its_mode(new_model):
    model = new_model().train()
    model.model.norm.weight.data = torch.ones(3)
    with pytest.raises(RuntimeError, match="must match"):
        LM(model).generate([1], max_tokens=2)
    assert all(module.training for module in model.modules())


def test_the_stop_token_ends_the_text_and_is_not_shown(scripted):
    result = scripted([104, 105, 256, 33]).generate("?", temperature=0)
    assert (result.text, result.token_ids) == ("hi", [104, 105])
    assert (result.finish_reason, result.stop_reason) == ("stop", 256)


def test_several_stop_tokens_and_none(scripted):
    lm = scripted([104, 105, 256, 33])
    given = lm.generate("?", temperature=0, stop_token_ids=[33, 105])
    assert (given.text, given.stop_reason) == ("h", 105)
    none = lm.generate("?", temperature=0, stop_token_ids=[], max_tokens=5)
    assert (none.text, none.finish_reason) == ("hi!h", "length")
    assert none.token_ids == [104, 105, 256, 33, 104]


def test_stop_strings_are_found_across_tokens_and_not_shown(scripted):
    lm = scripted("one. two. three.")
    result = lm.generate("?", temperature=0, stop=["x", ". th"])
    assert (result.text, result.finish_reason, result.stop_reason) == ("one. two", "stop", ". th")
    assert result.token_ids == list(b"one. two. th")
    assert "".join(lm.stream("?", temperature=0, stop=". th")) == "one. two"


def test_text_held_back_for_a_stop_string_is_shown_at_the_end(scripted):
    lm = scripted("ab")
    assert lm.generate("?", temperature=0, stop=["bb"], max_tokens=4).text == "abab"
    ended = scripted([97, 98, 256]).generate("?", temperature=0, stop=["bb"])
    assert (ended.text, ended.finish_reason) == ("ab", "stop")


def test_a_character_is_streamed_when_it_is_whole(scripted):
    lm = scripted("é🦙")
    assert list(lm.stream("?", temperature=0, max_tokens=6)) == ["é", "🦙"]
    assert list(lm.stream("?", temperature=0, max_tokens=5)) == ["é", "�"]
    assert lm.generate("?", temperature=0, max_tokens=5).text == "é�"


def test_the_text_goes_on_from_the_prompt(scripted):
    lm = scripted([0xA9, 33])
    assert lm.generate([0xC3], temperature=0, max_tokens=2).text == "é!"
    spaced = scripted(" word")
    spaced.tokenizer.strips_leading_space = True
    assert spaced.generate("?", temperature=0, max_tokens=5).text == " word"


def test_max_tokens_0_gives_no_token(lm):
    result = lm.generate("abc", max_tokens=0)
    assert (result.text, result.token_ids, result.finish_reason) == ("", [], "length")
    assert list(lm.stream("abc", max_tokens=0)) == []


@pytest.mark.parametrize("max_tokens", [None, 1000])
def test_more_tokens_than_fit_end_with_length_at_the_context_end(model, max_tokens):
    lm = LM(model)
    prompts = [[1] * 40, [2], [3] * 47, [4] * 48]
    results = lm.generate(prompts, max_tokens=max_tokens, temperature=0, stop_token_ids=[])
    assert [len(result.token_ids) for result in results] == [8, 47, 1, 0]
    assert {result.finish_reason for result in results} == {"length"}
    assert results[1].token_ids == without_cache(model, [2], 47)


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(lm):
    with pytest.raises(GenerationError, match=r"49 tokens.*48"):
        lm.generate([1] * 49)


def test_logits_that_are_not_numbers_are_an_error_and_not_a_token(new_model):
    model = new_model()
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    for temperature in (0, 1):
        with pytest.raises(GenerationError, match="NaN"):
            LM(model).generate([1], temperature=temperature)


def test_ids_beyond_the_tokenizer_are_never_chosen(new_model, tokenizer):
    model = new_model(vocab_size=300, tie_word_embeddings=False)
    with torch.no_grad():
        model.lm_head.weight[290:] *= 100
    assert max(LM(model).generate([1], temperature=0, max_tokens=9).token_ids) >= 290
    padded = LM(model, tokenizer)
    result = padded.generate([1, 299], max_tokens=9, repetition_penalty=1.2, stop_token_ids=[])
    assert max(result.token_ids) < 258


def test_a_bfloat16_model_generates(new_model):
    lm = LM(new_model().to(torch.bfloat16))
    assert len(lm.generate([1, 2], max_tokens=5, stop_token_ids=[]).token_ids) == 5

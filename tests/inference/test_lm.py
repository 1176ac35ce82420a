"""The Python face: prompts of every form, loss, logits, and errors that name what is wrong."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from llamita.errors import GenerationError
from llamita.inference.lm import LM


def test_logits_are_float32_and_the_models(model):
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    logits = LM(model).logits(ids)
    assert logits.dtype == torch.float32
    assert torch.equal(logits, model(ids))
    assert torch.equal(LM(model).logits(ids.tolist()), logits)


def test_logits_of_a_bfloat16_model_are_float32(new_model):
    assert LM(new_model().to(torch.bfloat16)).logits([[1, 2]]).dtype == torch.float32


def test_loss_is_the_mean_over_labelled_tokens_shifted_inside(lm, model):
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    labels = torch.tensor([[1, 2, -100, 4], [5, -100, -100, -100]])
    logits = model(ids)
    expected = torch.stack(
        [-logits[0, 0].log_softmax(-1)[2], -logits[0, 2].log_softmax(-1)[4]]
    ).mean()
    assert lm.loss(ids, labels).item() == pytest.approx(expected.item(), rel=1e-5)
    default = F.cross_entropy(logits[:, :-1].reshape(-1, 258), ids[:, 1:].reshape(-1))
    loss = lm.loss(ids)
    assert loss.item() == pytest.approx(default.item(), rel=1e-5)
    assert loss.dtype == torch.float32
    assert loss.shape == ()


def test_loss_is_0_where_nothing_is_labelled(lm):
    assert lm.loss([[1, 2, 3]], [[-100] * 3]).item() == 0.0
    assert lm.loss([[1]]).item() == 0.0
    assert lm.loss([[1, 2]], [[5, -100]]).item() == 0.0


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1, 258]], "258"),
        ([[-1, 2]], "-1"),
        ([1, 2], "shape"),
        ([[1.5, 2.0]], "float"),
        ([[1, 2], [3]], "matrix"),
        ([[]], "nothing"),
        ([[1] * 49], "49 tokens"),
    ],
)
def test_ids_that_cannot_be_read_are_refused(lm, ids, message):
    with pytest.raises(GenerationError, match=message):
        lm.logits(ids)


def test_labels_are_checked(lm):
    with pytest.raises(GenerationError, match="labels holds the token id 300"):
        lm.loss([[1, 2]], [[1, 300]])
    with pytest.raises(GenerationError, match="labels holds the token id -1"):
        lm.loss([[1, 2]], [[1, -1]])
    with pytest.raises(GenerationError, match="shape"):
        lm.loss([[1, 2]], [[1, 2, 3]])


def test_text_and_ids_one_and_several_give_the_same(lm):
    settings = {"temperature": 0, "max_tokens": 4}
    one = lm.generate("ab", **settings)
    ids = [97, 98]
    for prompt in (ids, tuple(ids), torch.tensor(ids), np.array(ids)):
        assert lm.generate(prompt, **settings) == one
    for prompts in (["ab", "ab"], [ids, ids], torch.tensor([ids, ids]), ("ab", ids)):
        assert lm.generate(prompts, **settings) == [one, one]
    assert one.prompt_token_ids == ids


@pytest.mark.parametrize("prefix", [(), (257,)])
def test_text_gets_bos_exactly_once_and_only_if_the_tokenizer_adds_it(model, new_tokenizer, prefix):
    lm = LM(model, new_tokenizer(bos_prefix=prefix))
    result = lm.generate("ab", max_tokens=1)
    assert result.prompt_token_ids == [*prefix, 97, 98]
    assert lm.generate([257, 97, 98], max_tokens=1).prompt_token_ids == [257, 97, 98]


def test_text_gets_no_eos_behind_it(model, tokenizer):
    tokenizer.eos_suffix = [256]
    assert LM(model, tokenizer).generate("ab", max_tokens=1).prompt_token_ids == [97, 98]


def test_an_empty_prompt_begins_a_document(model, new_tokenizer):
    with_bos = LM(model, new_tokenizer(bos_prefix=(257,)))
    assert with_bos.generate("", max_tokens=1).prompt_token_ids == [257]
    for nothing in ([[]], torch.empty(1, 0, dtype=torch.long)):
        assert with_bos.generate(nothing, max_tokens=1)[0].prompt_token_ids == [257]
    assert with_bos.generate(torch.tensor([]), max_tokens=1).prompt_token_ids == [257]
    separator = LM(model, new_tokenizer())
    assert separator.generate("", max_tokens=1).prompt_token_ids == [256]
    results = separator.generate(["", "a"], max_tokens=1)
    assert [result.prompt_token_ids for result in results] == [[256], [97]]


def test_an_empty_prompt_without_tokenizer_begins_with_the_configs_bos(new_model):
    for fields, first in (
        ({"bos_token_id": 7, "eos_token_id": 8}, 7),
        ({"eos_token_id": (8, 9)}, 8),
    ):
        [result] = LM(new_model(**fields)).generate([[]], max_tokens=1)
        assert result.prompt_token_ids == [first]


def test_no_prompts_give_no_generations(lm):
    assert lm.generate([]) == []
    assert list(lm.stream([])) == list(lm.stream_events([])) == []
    with pytest.raises(GenerationError, match="temperature"):
        lm.generate([], temperature=-1)


def test_an_empty_prompt_is_refused_where_nothing_begins_a_document(model, tokenizer):
    with pytest.raises(GenerationError, match="empty"):
        LM(model).generate([[]])
    tokenizer.bos_token_id = tokenizer.eos_token_id = None
    with pytest.raises(GenerationError, match="empty"):
        LM(model, tokenizer).generate("")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([1, 258], "258"),
        ([-1], "-1"),
        (None, "None"),
        (3, "3"),
        ([1.5], "1.5"),
        ([True], "True"),
        ([[1, "a"]], "'a'"),
        ({"a": 1}, "a"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused(lm, prompt, message):
    with pytest.raises(GenerationError, match=message):
        lm.generate(prompt)


def test_text_without_a_tokenizer_is_refused(model):
    lm = LM(model)
    with pytest.raises(GenerationError, match="no tokenizer"):
        lm.generate("a")
    with pytest.raises(GenerationError, match="no tokenizer"):
        lm.generate([1], stop=["a"])
    with pytest.raises(GenerationError, match="no tokenizer"):
        lm.stream([1])
    assert lm.generate([1], max_tokens=2).text == ""


@pytest.mark.parametrize("method", ["generate", "stream", "stream_events"])
def test_a_wrong_keyword_or_value_is_named_before_anything_runs(lm, method):
    call = getattr(lm, method)
    with pytest.raises(GenerationError, match="max_new_tokens"):
        call("a", max_new_tokens=3)
    with pytest.raises(GenerationError, match=r"top_p is 2"):
        call("a", top_p=2)
    with pytest.raises(GenerationError, match="stop_token_ids holds the token id 999"):
        call("a", stop_token_ids=[999])


def test_the_models_own_stop_tokens_are_those_of_every_config(new_model, tokenizer):
    model = new_model(eos_token_id=(8, 9))
    assert LM(model).stop_token_ids == (8, 9)
    assert LM(model, tokenizer).stop_token_ids == (8, 9, 256)
    assert LM(model, tokenizer, {"eos_token_id": [5, 8]}).stop_token_ids == (5, 8, 9, 256)
    assert LM(model, None, {"eos_token_id": 5}).stop_token_ids == (5, 8, 9)


def test_streamed_pieces_joined_are_the_text(lm):
    settings = {"seed": 5, "max_tokens": 20, "temperature": 1.0}
    assert "".join(lm.stream("ab", **settings)) == lm.generate("ab", **settings).text
    prompts = ["ab", "xyz"]
    texts = ["", ""]
    for row, piece in lm.stream(prompts, **settings):
        texts[row] += piece
    assert texts == [result.text for result in lm.generate(prompts, **settings)]


def test_events_carry_ids_and_the_finish_reason(lm):
    events = list(lm.stream_events("ab", temperature=0, max_tokens=3, stop_token_ids=[]))
    assert [event.finish_reason for event in events] == [None, None, "length"]
    expected = lm.generate("ab", temperature=0, max_tokens=3, stop_token_ids=[])
    assert [event.token_id for event in events] == expected.token_ids


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda lm: pickle.loads(pickle.dumps(lm))])
def test_a_copy_generates_the_same_and_shares_nothing(model, copy_of):
    lm = LM(model)
    before = lm.generate([1, 2], max_tokens=6, seed=1)
    other = copy_of(lm)
    assert other.generate([1, 2], max_tokens=6, seed=1) == before
    assert other.model is not lm.model
    assert other.engine is not lm.engine


def test_a_tokenizer_goes_along_with_a_copy(lm):
    other = copy.deepcopy(lm)
    assert other.generate("ab", max_tokens=6, seed=1) == lm.generate("ab", max_tokens=6, seed=1)


def test_a_message_given_as_a_prompt_is_sent_to_chat(lm):
    with pytest.raises(GenerationError, match="a message of a chat") as caught:
        lm.generate([{"role": "user", "content": "hi"}])
    assert "`chat`" in caught.value.hint

"""Bits per byte against a slow, plain reference: every byte paid once, under the context rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from llamita.errors import CheckpointError, DataError, GenerationError, TokenizerError
from llamita.evaluation import bits_per_byte as module
from llamita.evaluation import scoring
from llamita.evaluation.bits_per_byte import (
    WINDOW_BYTES,
    bits_per_byte,
    score_texts,
    split_windows,
)
from llamita.inference.prompts import start_token_id
from llamita.model.transformer import Transformer
from llamita.text.documents import Document
from llamita.tokenizer import train_tokenizer
from tests.evaluation.conftest import random_transformer

CONTEXT = 8
TEXT = "O Romeo, Romeo!\n\twherefore art thou Romeo? — “é” 🦙 Ծ "
TEXTS = [TEXT, "", "a", TEXT[::-1], "b" * 7, "c" * 8, "d" * 9, "e" * 30]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([TEXT * 3], "bpe:270")


@pytest.fixture(scope="module")
def make_model(tokenizer):
    def make(context: int = CONTEXT, seed: int = 0) -> Transformer:
        return random_transformer(tokenizer, context, seed)

    return make


def plain_nats(model, tokenizer, text: str, context: int) -> list[float]:
    """Score token by token, each after all before it in the first window that reaches it."""
    ids = [tokenizer.separator_id, *tokenizer.encode(text)]
    stride = max(1, context // 2)
    nats = []
    for place in range(1, len(ids)):
        start = max(0, math.ceil((place - context) / stride)) * stride
        with torch.no_grad():
            logits = model(torch.tensor([ids[start:place]]))[0, -1].double()
        nats.append(-logits.log_softmax(-1)[ids[place]].item())
    return nats


@pytest.mark.parametrize("context", [1, 2, 3, 7, 8])
def test_every_token_is_paid_once_under_the_context_rule(make_model, tokenizer, context):
    model = make_model()
    result = bits_per_byte(model, tokenizer, TEXTS, context_length=context)
    nats = [x for text in TEXTS for x in plain_nats(model, tokenizer, text, context)]
    size = sum(len(text.encode()) for text in TEXTS)
    assert result.bits_per_byte == pytest.approx(sum(nats) / math.log(2) / size, rel=1e-5)
    assert result.perplexity == pytest.approx(math.exp(sum(nats) / len(nats)), rel=1e-5)
    assert (result.bytes, result.tokens) == (size, len(nats))


def test_windows_of_the_models_context_are_the_default(make_model, tokenizer):
    model = make_model()
    assert bits_per_byte(model, tokenizer, TEXTS) == bits_per_byte(
        model, tokenizer, TEXTS, context_length=CONTEXT
    )


@pytest.mark.parametrize("context", [1, 2, 5, 8])
@pytest.mark.parametrize("tokens", range(40))
def test_windows_of_every_length_pay_each_token_once(context, tokens):
    ids, sizes = list(range(tokens + 1)), [10 + i for i in range(tokens)]
    windows = list(split_windows(ids, sizes, 3, 1000, context))
    assert {window.document for window in windows} <= {3}
    paid = [sum(window.target_bytes) for window in windows]
    assert [window.place for window in windows] == [1000 + sum(paid[:i]) for i in range(len(paid))]
    assert [t for window in windows for t in window.targets] == ids[1:]
    assert [s for window in windows for s in window.target_bytes] == sizes
    for number, window in enumerate(windows):
        assert 1 <= len(window.inputs) <= context
        assert len(window.inputs) - window.first == len(window.targets) == len(window.target_bytes)
        assert window.inputs[window.first] + 1 == window.targets[0]
        assert window.first >= (context - max(1, context // 2) if number else 0)


def test_uniform_logits_cost_the_vocabulary(make_model, tokenizer):
    model = make_model()
    model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    result = bits_per_byte(model, tokenizer, TEXTS)
    expected = math.log2(model.config.vocab_size) * result.tokens / result.bytes
    assert result.bits_per_byte == pytest.approx(expected, rel=1e-6)
    assert result.perplexity == pytest.approx(model.config.vocab_size, rel=1e-6)


def test_a_model_that_computes_no_numbers_is_an_error(make_model, tokenizer):
    model = make_model()
    with torch.no_grad():
        model.lm_head.weight[3] = math.nan
    with pytest.raises(CheckpointError, match="NaN"):
        bits_per_byte(model, tokenizer, TEXTS)


def test_documents_do_not_see_each_other(make_model, tokenizer):
    model = make_model()
    parts = [bits_per_byte(model, tokenizer, [text]) for text in (TEXT, "a" * 20)]
    whole = bits_per_byte(model, tokenizer, [TEXT, "a" * 20])
    bits = sum(part.bits_per_byte * part.bytes for part in parts)
    assert whole.bits_per_byte * whole.bytes == pytest.approx(bits, rel=1e-6)


def test_batches_and_chunks_of_any_size_give_the_same(make_model, tokenizer, monkeypatch):
    model = make_model()
    expected = bits_per_byte(model, tokenizer, TEXTS)
    monkeypatch.setattr(scoring, "_BATCH_TOKENS", 20)
    monkeypatch.setattr(scoring, "_SORTED_TOKENS", 50)
    monkeypatch.setattr(module, "_ENCODED_CHARACTERS", 10)
    monkeypatch.setattr(scoring, "_LOGITS_BYTES", 4 * model.config.vocab_size * 3)
    result = bits_per_byte(model, tokenizer, TEXTS)
    assert result.bits_per_byte == pytest.approx(expected.bits_per_byte, rel=1e-6)
    assert result.bits_per_byte_stderr == pytest.approx(expected.bits_per_byte_stderr, rel=1e-4)
    assert (result.bytes, result.tokens) == (expected.bytes, expected.tokens)


def test_no_more_logits_are_held_than_the_limit(make_model, tokenizer, monkeypatch):
    model = make_model()
    rows = []
    model.lm_head.register_forward_hook(lambda _m, inputs, _o: rows.append(len(inputs[0])))
    monkeypatch.setattr(scoring, "_LOGITS_BYTES", 4 * model.config.vocab_size * 5)
    result = bits_per_byte(model, tokenizer, TEXTS)
    assert max(rows) == 5
    assert sum(rows) == result.tokens


def ratio_formula(bits, sizes) -> float:
    """Cochran's standard error of a ratio, without drawing anything."""
    bits, sizes = np.array(bits), np.array(sizes)
    squares = ((bits - bits.sum() / sizes.sum() * sizes) ** 2).sum()
    return math.sqrt(len(bits) / (len(bits) - 1) * squares) / sizes.sum()


def test_the_standard_error_is_over_documents(make_model, tokenizer):
    model = make_model()
    texts = [text for text in TEXTS if text] * 3
    result = bits_per_byte(model, tokenizer, texts)
    bits = [sum(plain_nats(model, tokenizer, t, CONTEXT)) / math.log(2) for t in texts]
    expected = ratio_formula(bits, [len(text.encode()) for text in texts])
    assert (result.stderr_over, result.documents) == ("documents", len(texts))
    assert result.bits_per_byte_stderr == pytest.approx(expected, rel=0.1)


def test_pieces_of_a_cut_document_are_one_unit(make_model, tokenizer):
    model = make_model()
    whole = [Document(TEXT, "a"), Document("b" * 40, "b"), Document("c", "c")]
    cut = [
        Document(TEXT[:9], "a"),
        Document(TEXT[9:], "a#2", piece=2),
        Document("b" * 8, "b"),
        Document("", "b#2", piece=2),
        Document("b" * 32, "b#3", piece=3),
        Document("", "empty"),
        Document("c", "c"),
    ]
    expected, found = score_texts(model, tokenizer, whole), score_texts(model, tokenizer, cut)
    assert found.documents == expected.documents == 3
    assert found.bytes.tolist() == expected.bytes.tolist()
    # Each piece stands behind the token of a beginning of its own.
    alone = [sum(plain_nats(model, tokenizer, TEXT[a:b], CONTEXT)) for a, b in ((0, 9), (9, None))]
    assert found.bits[0] == pytest.approx(sum(alone) / math.log(2), rel=1e-5)


def test_one_document_has_its_stretches_for_units_whatever_the_context(make_model, tokenizer):
    model = make_model()
    text = (TEXT * 60)[: 2 * WINDOW_BYTES]
    size = len(text.encode())
    short, full = (score_texts(model, tokenizer, [text], context_length=c) for c in (3, CONTEXT))
    for scores in (short, full):
        assert scores.unit == "windows"
        assert scores.bytes.sum() == size
        assert len(scores.bytes) == math.ceil(size / WINDOW_BYTES)
        assert scores.bits.sum() == pytest.approx(scores.total_bits, rel=1e-9)
    assert (short.bytes == full.bytes).all()
    nats = plain_nats(model, tokenizer, text, CONTEXT)
    ends = np.cumsum([len(tokenizer.token_bytes(token)) for token in tokenizer.encode(text)])
    second = sum(x for x, start in zip(nats, [0, *ends[:-1]], strict=True) if start // 1024 == 1)
    assert full.bits[1] == pytest.approx(second / math.log(2), rel=1e-5)
    pieces = [Document(text[:500], "a"), Document(text[500:], "a#2", piece=2)]
    assert score_texts(model, tokenizer, pieces).unit == "windows"


def test_a_short_text_has_its_tokens_for_units_and_a_single_token_no_error(make_model, tokenizer):
    model = make_model()
    text = "é🦙 Rom"
    bits = np.array(plain_nats(model, tokenizer, text, CONTEXT)) / math.log(2)
    sizes = np.array([len(tokenizer.token_bytes(token)) for token in tokenizer.encode(text)])
    assert len(set(sizes)) > 1
    result = bits_per_byte(model, tokenizer, [text])
    assert result.stderr_over == "tokens"
    assert result.bits_per_byte_stderr == pytest.approx(ratio_formula(bits, sizes), rel=0.2)
    assert math.isnan(bits_per_byte(model, tokenizer, ["a"]).bits_per_byte_stderr)


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_no_text_is_an_error(make_model, tokenizer, texts):
    with pytest.raises(DataError, match="0 bytes"):
        bits_per_byte(make_model(), tokenizer, texts)


def test_a_tokenizer_that_loses_text_is_refused_with_what_is_lost(
    make_model, tokenizer, monkeypatch
):
    encode_batch = tokenizer.encode_batch
    monkeypatch.setattr(
        tokenizer,
        "encode_batch",
        lambda texts: encode_batch([text.replace("\n", " ") for text in texts]),
    )
    with pytest.raises(TokenizerError, match=r"character 3, '\\nTwo' comes back as ' Two'"):
        bits_per_byte(make_model(), tokenizer, ["One\nTwo"])


def test_text_dropped_at_the_end_or_altogether_is_lost_too(make_model, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "encode_batch", lambda texts: [[] for _ in texts])
    with pytest.raises(TokenizerError, match="character 0, 'abc' comes back as ''"):
        bits_per_byte(make_model(), tokenizer, ["abc"])


def test_a_space_that_the_tokenizer_adds_is_no_byte_of_the_text(make_model, tokenizer, monkeypatch):
    encode_batch = tokenizer.encode_batch
    monkeypatch.setattr(tokenizer, "strips_leading_space", True)
    monkeypatch.setattr(
        tokenizer, "encode_batch", lambda texts: encode_batch([f" {text}" for text in texts])
    )
    result = bits_per_byte(make_model(), tokenizer, ["abc", "de"])
    assert result.bytes == 5
    assert result.tokens == len(encode_batch([" abc"])[0]) + len(encode_batch([" de"])[0])


def test_a_tokenizer_that_marks_no_beginning_is_refused(make_model, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "eos_token_id", None)
    monkeypatch.setattr(tokenizer, "bos_token_id", None)
    with pytest.raises(TokenizerError, match="beginning"):
        bits_per_byte(make_model(), tokenizer, ["a"])


def test_the_token_before_a_document_is_bos_where_the_tokenizer_adds_one(
    make_model, tokenizer, monkeypatch
):
    config = make_model().config
    monkeypatch.setattr(tokenizer, "bos_token_id", 5)
    monkeypatch.setattr(tokenizer, "eos_token_id", 6)
    monkeypatch.setattr(tokenizer, "bos_prefix", [])
    assert start_token_id(tokenizer, config) == 6
    monkeypatch.setattr(tokenizer, "bos_prefix", [5])
    assert start_token_id(tokenizer, config) == 5


def test_a_tokenizer_larger_than_the_model_is_an_error(make_model, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "encode_batch", lambda texts: [[999] for _ in texts])
    with pytest.raises(GenerationError, match="999"):
        bits_per_byte(make_model(), tokenizer, ["a"])


@pytest.mark.parametrize("context", [0, -1, CONTEXT + 1])
def test_a_context_that_the_model_has_not_is_refused(make_model, tokenizer, context):
    with pytest.raises(DataError, match=str(context)):
        bits_per_byte(make_model(), tokenizer, ["a"], context_length=context)


def test_the_model_keeps_its_mode_and_progress_counts_all_bytes(make_model, tokenizer):
    model = make_model().train()
    done = []
    result = bits_per_byte(model, tokenizer, TEXTS, progress=done.append)
    assert sum(done) == result.bytes
    assert all(part.training for part in model.modules())

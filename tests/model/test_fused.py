"""Reading uses the model's own weights, joined, and notices what happens to them."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn

from llamita.errors import GenerationError
from llamita.model import precision
from llamita.model.fused import FusedDecoder
from llamita.model.kv_cache import KVCache
from llamita.model.norm import RMSNorm
from llamita.model.prefill_plan import PrefillPlan, Stretch
from llamita.model.steps import rms_norm
from llamita.model.transformer import Transformer

QWEN = {"use_qk_norm": True, "attention_bias": True, "mlp_bias": True}


@torch.inference_mode()
def read(decoder: FusedDecoder, model: Transformer, ids: Tensor) -> Tensor:
    cache = KVCache(model.config, model.model.norm.weight.dtype)
    cache.resize(1, len(ids))
    return decoder.logits(ids, PrefillPlan(cache, model.rope, [Stretch(0, 0, len(ids), 0)]))


@torch.no_grad()
def full(model: Transformer, ids: Tensor) -> Tensor:
    return model(ids[None])[0]


def storages(model: Transformer) -> int:
    """Bytes of all that the parameters keep alive."""
    held = {
        p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()
    }
    return sum(held.values())


@pytest.mark.parametrize("fields", [{}, QWEN, {"tie_word_embeddings": True}])
def test_joining_holds_nothing_twice_and_changes_no_weight(make_model, ids, fields) -> None:
    model = make_model(**fields)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    size = storages(model)
    decoder = FusedDecoder(model)
    assert storages(model) == size
    layer = model.model.layers[0]
    shared = layer.self_attn.q_proj.weight.untyped_storage().data_ptr()
    assert layer.self_attn.v_proj.weight.untyped_storage().data_ptr() == shared
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert (read(decoder, model, ids[0]) - full(model, ids[0])).abs().max() <= 1e-5


def test_a_second_reader_shares_the_joined_weights(make_model, ids) -> None:
    model = make_model()
    first = FusedDecoder(model)
    versions, size = first.versions, storages(model)
    second = FusedDecoder(model)
    assert first.versions == versions == second.versions
    assert storages(model) == size


def test_weights_that_are_replaced_or_written_are_those_that_are_read(make_model, ids) -> None:
    model, other = make_model(), make_model()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.7)
    decoder = FusedDecoder(model)
    seen = {decoder.versions}

    def reads_as(wanted: Transformer, tolerance: float = 1e-5) -> bool:
        assert decoder.versions not in seen
        seen.add(decoder.versions)
        gap = read(decoder, model, ids[0]) - full(wanted, ids[0])
        return bool(gap.abs().max() <= tolerance)

    model.load_state_dict(other.state_dict())
    assert reads_as(other)
    model.model.layers[1].mlp.up_proj.weight.data = torch.zeros(48, 32)
    assert reads_as(model)
    model.load_state_dict({k: v.clone() for k, v in other.state_dict().items()}, assign=True)
    assert reads_as(other)
    model.to(torch.bfloat16)
    assert reads_as(model, 0.1)


def test_a_model_can_be_trained_after_it_was_read(make_model, ids) -> None:
    model, twin = make_model(), make_model()
    decoder = FusedDecoder(model)
    read(decoder, model, ids[0])
    for each in (model, twin):
        optimizer = torch.optim.AdamW(each.parameters(), lr=0.01)
        each(ids).logsumexp(-1).mean().backward()
        optimizer.step()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert (read(decoder, model, ids[0]) - full(twin, ids[0])).abs().max() <= 1e-5


def test_a_model_in_training_is_left_as_it_is(make_model, ids) -> None:
    model = make_model().train()
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    decoder = FusedDecoder(model)
    got = read(decoder, model, ids[0])
    assert [parameter.data_ptr() for parameter in model.parameters()] == addresses
    assert (got - full(model, ids[0])).abs().max() <= 1e-5


@pytest.mark.parametrize("fields", [QWEN, {"tie_word_embeddings": True}])
def test_a_model_made_in_inference_mode_is_read(make_model, ids, fields) -> None:
    with torch.inference_mode():
        model = make_model(**fields)
    for _ in range(2):
        decoder = FusedDecoder(model)
        versions = decoder.versions
        assert (read(decoder, model, ids[0]) - full(model, ids[0])).abs().max() <= 1e-5
        assert decoder.versions == versions


class Adapted(nn.Module):
    """A linear map and a small correction of it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.correction = nn.Linear(base.in_features, base.out_features)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.correction(x)


@pytest.mark.parametrize("part", ["q_proj", "v_proj", "o_proj", "up_proj", "down_proj", "lm_head"])
@pytest.mark.parametrize(
    "kind", [Adapted, lambda old: nn.Linear(old.in_features, old.out_features)]
)
def test_a_projection_that_is_replaced_is_read_as_what_it_is(make_model, ids, part, kind) -> None:
    model = make_model()
    decoder = FusedDecoder(model)
    before, versions = read(decoder, model, ids[0]), decoder.versions
    layer = model.model.layers[1]
    holder = next(each for each in (layer.self_attn, layer.mlp, model) if hasattr(each, part))
    setattr(holder, part, kind(getattr(holder, part)))
    assert decoder.versions != versions
    got = read(decoder, model, ids[0])
    assert (got - full(model, ids[0])).abs().max() <= 1e-5
    assert (got - before).abs().max() > 1e-3
    versions = decoder.versions
    with torch.no_grad():
        next(getattr(holder, part).parameters()).mul_(0.5)
    assert decoder.versions != versions
    assert (read(decoder, model, ids[0]) - full(model, ids[0])).abs().max() <= 1e-5


def test_an_embedding_may_be_replaced_and_a_norm_may_not(make_model, ids) -> None:
    model = make_model()
    decoder = FusedDecoder(model)
    model.model.embed_tokens = nn.Sequential(model.model.embed_tokens, nn.Linear(32, 32))
    assert (read(decoder, model, ids[0]) - full(model, ids[0])).abs().max() <= 1e-5
    model.model.layers[1].input_layernorm = nn.LayerNorm(32)
    for _ in range(2):
        with pytest.raises(GenerationError, match="replaced by LayerNorm"):
            decoder.refresh()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_for_reading_is_the_module(dtype: torch.dtype) -> None:
    x = torch.randn(7, 576, generator=torch.Generator().manual_seed(1)).to(dtype)
    module = RMSNorm(576, 1e-5).to(dtype)
    with torch.no_grad():
        module.weight.uniform_(0.5, 2)
        got = rms_norm(x, module.weight, torch.tensor([1e-5]))
        rounding = 1e-6 if dtype == torch.float32 else 0.008
        torch.testing.assert_close(got, module(x), atol=0, rtol=rounding)


@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5, 6, 40])
def test_a_product_is_the_same_whichever_way_it_goes(monkeypatch, slow, dtype, rows) -> None:
    monkeypatch.setitem(precision._SLOW, dtype, slow and dtype != torch.float32)
    monkeypatch.setattr(precision, "_BLOCK", 100)
    generator = torch.Generator().manual_seed(rows)
    x, weight, bias = (
        torch.randn(shape, generator=generator).to(dtype) for shape in ((rows, 24), (37, 24), (37,))
    )
    with torch.inference_mode():
        for each in (None, bias):
            got = precision.linear(x, weight, each)
            exact = torch.nn.functional.linear(
                x.double(), weight.double(), None if each is None else each.double()
            )
            assert got.dtype == dtype
            assert got.is_contiguous()
            torch.testing.assert_close(got, exact.to(dtype), atol=2e-5, rtol=torch.finfo(dtype).eps)


def test_without_a_compiler_one_warning_is_logged_and_nothing_else_differs(
    make_model, ids, monkeypatch, caplog
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no C++ compiler\nand a long story")

    monkeypatch.setattr(torch, "compile", fail)
    model = make_model()
    with caplog.at_level(logging.WARNING):
        decoder = FusedDecoder(model, compile=True)
        got = read(decoder, model, ids[0])
    assert [record.getMessage() for record in caplog.records] == [
        "torch.compile does not work here, so nothing is compiled: no C++ compiler"
    ]
    assert (got - full(model, ids[0])).abs().max() <= 1e-5


def test_compiled_steps_are_given_what_they_need(make_model, ids, monkeypatch) -> None:
    # With a compiler that compiles nothing; the real one takes half a minute.
    compiled: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda step, **_: compiled.append(step) or step)
    model = make_model(**QWEN)
    got = read(FusedDecoder(model, compile=True), model, ids[0])
    assert len(compiled) == 5
    assert (got - full(model, ids[0])).abs().max() <= 1e-5


def test_a_compiler_that_fails_late_ends_no_row_and_is_asked_no_more(
    make_model, ids, monkeypatch, caplog
) -> None:
    asked = []

    def compiled(step, **_):
        asked.append(step)
        passes = [] if len(asked) > 1 else [0] * 9  # the probe works

        def run(*given):
            passes.append(0)
            if 4 <= len(passes) < 9:
                raise RuntimeError("no room for another graph\nand a long story")
            return step(*given)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    model = make_model()
    decoder = FusedDecoder(model, compile=True)
    for _ in range(3):
        assert (read(decoder, model, ids[0]) - full(model, ids[0])).abs().max() <= 1e-5
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
    assert (read(decoder, model, ids[0]) - full(model, ids[0])).abs().max() <= 1e-5
    assert len(asked) == 5
    assert [record.getMessage() for record in caplog.records] == [
        "torch.compile does not work here, so nothing is compiled: no room for another graph"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_reading_equals_reading(make_model, ids, dtype: torch.dtype, caplog) -> None:
    model = make_model(**QWEN).to(dtype)
    decoder = FusedDecoder(model, compile=True)
    gaps = [(read(decoder, model, row) - full(model, row)).abs().max() for row in ids[:, :7]]
    gaps += [(read(decoder, model, row) - full(model, row)).abs().max() for row in ids[:, :1]]
    assert max(gaps) <= (1e-5 if dtype == torch.float32 else 0.1)
    assert not caplog.records

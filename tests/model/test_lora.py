"""Low-rank adapters on a model: what they compute, what is trained and what stays."""

from __future__ import annotations

import pytest
import torch

from llamita.config import preset
from llamita.inference.lm import LM
from llamita.model import Transformer
from llamita.model.lora import LowRankLinear, add_adapters, merged
from llamita.training.settings.lora import TARGETS, Lora
from llamita.training.settings.recipe import Optimizer
from llamita.training.steps.cross_entropy import chunk_loss, head_loss_sum
from llamita.training.steps.optimizers import build_optimizers, set_learning_rate

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def _model(**fields: object) -> Transformer:
    return Transformer(preset("tiny", 100, **fields)).initialize(0)


def _steps(model: Transformer, count: int = 3) -> None:
    optimizers = build_optimizers(model, Optimizer(name="adamw", weight_decay=0.5), "float32")
    set_learning_rate(optimizers, 0.01)
    for _ in range(count):
        hidden = model.hidden_states(IDS)
        loss = head_loss_sum(
            hidden,
            model.lm_head.weight,
            IDS.roll(-1),
            torch.float32,
            lambda logits, labels, _: chunk_loss(logits, labels),
        )
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def test_fresh_adapters_change_nothing() -> None:
    model = _model(attention_bias=True)
    before = model(IDS)
    add_adapters(model, TARGETS, rank=4, alpha=8, seed=1)
    assert torch.equal(model(IDS), before)


def test_an_adapter_adds_its_product_to_the_weight() -> None:
    linear = torch.nn.Linear(6, 5)
    adapter = LowRankLinear(linear, 2, 8.0, 0.0)
    adapter.initialize(torch.Generator().manual_seed(0))
    torch.nn.init.normal_(adapter.lora_B)
    whole = merged(linear.weight, adapter.lora_A, adapter.lora_B, 8.0 / 2)
    x = torch.randn(3, 6)
    assert torch.allclose(adapter(x), torch.nn.functional.linear(x, whole, linear.bias), atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_only_adapters_and_the_rows_of_new_tokens_are_trained(tied: bool) -> None:
    model = _model(tie_word_embeddings=tied)
    add_adapters(model, ("q_proj", "down_proj"), rank=2, alpha=4, tokens=(5, 99))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    _steps(model)
    for name, value in model.state_dict().items():
        if "lora_" in name:
            assert not torch.equal(value, before[name])
        elif name in ("model.embed_tokens.weight", "lm_head.weight"):
            moved = (value != before[name]).any(1).nonzero().flatten().tolist()
            # 99 is no input: an untied embedding's row of it gets no gradient.
            expected = [5] if not tied and name.startswith("model.") else [5, 99]
            assert moved == expected
        else:
            assert torch.equal(value, before[name]), name


def test_without_new_tokens_the_tables_have_no_gradient() -> None:
    model = _model()
    add_adapters(model, TARGETS, rank=2, alpha=4)
    held = {id(p) for o in build_optimizers(model, Optimizer(name="adamw"), "float32")
            for g in o.param_groups for p in g["params"]}  # fmt: skip
    named = {name for name, p in model.named_parameters() if id(p) in held}
    assert named == {name for name, _ in model.named_parameters() if "lora_" in name}
    _steps(model)
    assert model.lm_head.weight.grad is None


@pytest.mark.parametrize("targets", [TARGETS, ("k_proj",), ("up_proj", "o_proj")])
def test_the_recipe_counts_what_the_model_gets(targets: tuple[str, ...]) -> None:
    model = _model(num_key_value_heads=1)
    lora = Lora(rank=3, targets=targets)  # type: ignore[arg-type]
    add_adapters(model, targets, rank=3, alpha=4)
    found = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    assert found == lora.values(model.config) > 0


def test_generating_sees_the_adapters_and_no_dropout() -> None:
    model = _model()
    add_adapters(model, TARGETS, rank=4, alpha=64, dropout=0.9)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = [int(model.eval()(IDS)[0, -1].argmax())]
    model.train()
    generated = LM(model).generate(IDS[0].tolist(), max_tokens=1, temperature=0.0)
    assert list(generated.token_ids) == expected
    assert not torch.equal(model(IDS), model(IDS))  # in training it draws
